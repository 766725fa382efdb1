package controller

import (
	"context"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"drydock.dev/local/internal/volume"
)

// CreateSnapshot copies a volume's content.
func (s *Server) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	if r.GetName() == "" || r.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the snapshot has no name or no source")
	}
	of, err := s.store.Volume(r.GetSourceVolumeId())
	if err != nil {
		return nil, coded(err)
	}
	name := fileName(r.GetName())
	unlock, err := s.locks.Lock(volume.SnapshotKey(name), volume.Key(of.Name))
	if err != nil {
		return nil, err
	}
	defer unlock()
	made, err := s.store.CreateSnapshot(ctx, name, of)
	if err != nil {
		return nil, coded(err)
	}
	return &spec.CreateSnapshotResponse{Snapshot: snapshot(made)}, nil
}

func snapshot(v volume.Volume) *spec.Snapshot {
	return &spec.Snapshot{
		SnapshotId: v.ID(), SourceVolumeId: v.Source, SizeBytes: v.Bytes,
		CreationTime: timestamppb.New(v.Created), ReadyToUse: true,
	}
}

// DeleteSnapshot ignores a missing snapshot.
func (s *Server) DeleteSnapshot(_ context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no snapshot is named")
	}
	_, name, ok := volume.ParseID(r.GetSnapshotId())
	if !ok {
		return &spec.DeleteSnapshotResponse{}, nil // none of ours has such an ID
	}
	unlock, err := s.locks.Lock(volume.SnapshotKey(name), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &spec.DeleteSnapshotResponse{}, coded(ignoreMissing(s.store.DeleteSnapshot(r.GetSnapshotId())))
}

// ListSnapshots sorts by ID. A page token is the previous page's last ID, so concurrent changes shift no page.
func (s *Server) ListSnapshots(_ context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse, error) {
	all, err := s.store.Snapshots()
	if err != nil {
		return nil, coded(err)
	}
	if token := r.GetStartingToken(); token != "" {
		if _, _, ok := volume.ParseID(token); !ok {
			return nil, status.Errorf(codes.Aborted, "%q is not a token of ours", token)
		}
	}
	all = slices.DeleteFunc(all, func(v volume.Volume) bool {
		return r.GetSnapshotId() != "" && v.ID() != r.GetSnapshotId() ||
			r.GetSourceVolumeId() != "" && v.Source != r.GetSourceVolumeId() ||
			strings.Compare(v.ID(), r.GetStartingToken()) <= 0
	})
	response := &spec.ListSnapshotsResponse{}
	if most := int(r.GetMaxEntries()); most > 0 && len(all) > most {
		all = all[:most]
		response.NextToken = all[most-1].ID()
	}
	for _, v := range all {
		response.Entries = append(response.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: snapshot(v)})
	}
	return response, nil
}
