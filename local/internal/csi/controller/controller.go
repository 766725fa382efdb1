// Package controller is the CSI driver's controller service: it alone creates and deletes volumes, for all nodes,
// and maps package volume's errors to CSI codes. It must not mount anything.
package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/volume"
)

// Server is the controller service.
type Server struct {
	spec.UnimplementedControllerServer
	store volume.Store
	locks csi.Locks
}

// New returns the service of a store.
func New(store volume.Store) *Server { return &Server{store: store} }

// ControllerGetCapabilities returns the supported calls.
func (s *Server) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	response := &spec.ControllerGetCapabilitiesResponse{}
	for _, t := range []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		spec.ControllerServiceCapability_RPC_GET_CAPACITY,
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
		spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

// CreateVolume creates a volume, empty or from a source.
func (s *Server) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if r.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume has no name")
	}
	want, err := s.wanted(r)
	if err != nil {
		return nil, err
	}
	from, err := s.source(r.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	reading := ""
	if from != nil {
		if err := from.Fits(want); err != nil {
			return nil, coded(err)
		}
		reading = from.Key()
	}
	unlock, err := s.locks.Lock(volume.Key(want.Name), reading)
	if err != nil {
		return nil, err
	}
	defer unlock()
	made, err := s.store.Create(ctx, want, from)
	if err != nil {
		return nil, coded(err)
	}
	if limit := r.GetCapacityRange().GetLimitBytes(); limit > 0 && made.Bytes > limit {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes, over the limit of %d", made.Name, made.Bytes, limit)
	}
	response := &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId:      made.ID(),
		CapacityBytes: made.Bytes,
		VolumeContext: map[string]string{"kind": string(made.Kind)},
		ContentSource: r.GetVolumeContentSource(),
	}}
	if made.Disk != volume.Shared {
		response.Volume.AccessibleTopology = []*spec.Topology{{Segments: map[string]string{csi.Topology: made.Disk}}}
	}
	return response, nil
}

func (s *Server) wanted(r *spec.CreateVolumeRequest) (volume.Volume, error) {
	scope, err := scopeOf(r.GetParameters())
	if err != nil {
		return volume.Volume{}, err
	}
	if err := checkCapabilities(r.GetVolumeCapabilities(), scope); err != nil {
		return volume.Volume{}, status.Error(codes.InvalidArgument, err.Error())
	}
	want := volume.Volume{Name: fileName(r.GetName()), Disk: volume.Shared, Kind: kindOf(r.GetVolumeCapabilities(), scope)}
	if scope == csi.ScopeNode {
		if want.Disk, err = s.chooseDisk(r.GetAccessibilityRequirements()); err != nil {
			return want, err
		}
	}
	limits := r.GetCapacityRange()
	if want.Bytes, err = volume.Size(want.Kind, limits.GetRequiredBytes(), limits.GetLimitBytes()); err != nil {
		return want, status.Error(codes.OutOfRange, err.Error())
	}
	return want, nil
}

func scopeOf(parameters map[string]string) (string, error) {
	for key, value := range parameters {
		if key != csi.Scope || value != csi.ScopeNode && value != csi.ScopeShared {
			return "", status.Errorf(codes.InvalidArgument, "parameter %s=%q: a class of %s has only %s, which is %s or %s",
				key, value, csi.Driver, csi.Scope, csi.ScopeNode, csi.ScopeShared)
		}
	}
	if scope := parameters[csi.Scope]; scope != "" {
		return scope, nil
	}
	return csi.ScopeNode, nil
}

// chooseDisk returns the first preferred node: for a volume that waits for its first consumer, the
// pod's node. A request without nodes gets the emptiest disk.
func (s *Server) chooseDisk(r *spec.TopologyRequirement) (string, error) {
	for _, candidates := range [][]*spec.Topology{r.GetPreferred(), r.GetRequisite()} {
		for _, t := range candidates {
			if node := t.GetSegments()[csi.Topology]; node != "" {
				return node, nil
			}
		}
	}
	disk, err := s.store.Emptiest()
	return disk, coded(err)
}

func kindOf(capabilities []*spec.VolumeCapability, scope string) volume.Kind {
	switch {
	case capabilities[0].GetBlock() != nil:
		return volume.Block
	case scope == csi.ScopeShared:
		return volume.Folder
	}
	return volume.Ext4
}

func checkCapabilities(capabilities []*spec.VolumeCapability, scope string) error {
	if len(capabilities) == 0 {
		return errors.New("no volume capability is given")
	}
	for _, c := range capabilities {
		if (c.GetBlock() == nil) != (capabilities[0].GetBlock() == nil) {
			return errors.New("a volume is a block device or a filesystem, not both")
		}
		if c.GetBlock() == nil && c.GetMount() == nil {
			return errors.New("a volume capability says neither block nor mount")
		}
		if t := c.GetMount().GetFsType(); t != "" && t != string(volume.Ext4) {
			return fmt.Errorf("filesystem %q: only ext4 is supported", t)
		}
		switch c.GetAccessMode().GetMode() {
		case spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
			spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		case spec.VolumeCapability_AccessMode_UNKNOWN:
			return errors.New("a volume capability has no access mode")
		default:
			if scope != csi.ScopeShared {
				return fmt.Errorf("access mode %s: a volume on a node's own disk serves one node (ReadWriteOnce, ReadWriteOncePod); for several use the class shared", c.GetAccessMode().GetMode())
			}
		}
	}
	return nil
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// fileName returns the name itself if it is a valid file name, else a hash of it.
func fileName(name string) string {
	if safeName.MatchString(name) {
		return name
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(name)) // Write of a hash never fails
	return fmt.Sprintf("h-%x", h.Sum(nil))
}

// source finds the source of a new volume, nil if it has none.
func (s *Server) source(from *spec.VolumeContentSource) (*volume.Source, error) {
	var found *volume.Source
	var err error
	switch {
	case from == nil:
		return nil, nil
	case from.GetSnapshot() != nil:
		found, err = s.store.FromSnapshot(from.GetSnapshot().GetSnapshotId())
	case from.GetVolume() != nil:
		found, err = s.store.FromVolume(from.GetVolume().GetVolumeId())
	default:
		return nil, status.Error(codes.InvalidArgument, "the volume's source is neither a snapshot nor a volume")
	}
	return found, coded(err)
}

// DeleteVolume ignores a missing volume.
func (s *Server) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume is named")
	}
	_, name, ok := volume.ParseID(r.GetVolumeId())
	if !ok {
		return &spec.DeleteVolumeResponse{}, nil // none of ours has such an ID
	}
	unlock, err := s.locks.Lock(volume.Key(name), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &spec.DeleteVolumeResponse{}, coded(ignoreMissing(s.store.Delete(r.GetVolumeId())))
}

func ignoreMissing(err error) error {
	if errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	return err
}

// ValidateVolumeCapabilities reports whether an existing volume supports the capabilities.
func (s *Server) ValidateVolumeCapabilities(_ context.Context, r *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no volume or no capability is given")
	}
	v, err := s.store.Volume(r.GetVolumeId())
	if err != nil {
		return nil, coded(err)
	}
	scope := csi.ScopeNode
	if v.Disk == volume.Shared {
		scope = csi.ScopeShared
	}
	err = checkCapabilities(r.GetVolumeCapabilities(), scope)
	if err == nil && kindOf(r.GetVolumeCapabilities(), scope) != v.Kind {
		err = fmt.Errorf("volume %s is of kind %s", v.ID(), v.Kind)
	}
	if err != nil {
		return &spec.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

// capacityUnit is the rounding of reported free space. Free space changes constantly, and every
// change would be a write to the API server.
const capacityUnit = 1 << 30

// GetCapacity returns the free space of a node's or the shared disk.
func (s *Server) GetCapacity(_ context.Context, r *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	scope, err := scopeOf(r.GetParameters())
	if err != nil {
		return nil, err
	}
	disk := volume.Shared
	if scope == csi.ScopeNode {
		if disk = r.GetAccessibleTopology().GetSegments()[csi.Topology]; disk == "" {
			return &spec.GetCapacityResponse{}, nil // no node, no disk
		}
	}
	free, err := s.store.Free(disk)
	if errors.Is(err, volume.ErrNotFound) {
		return &spec.GetCapacityResponse{}, nil
	}
	if err != nil {
		return nil, coded(err)
	}
	if free > capacityUnit {
		free -= free % capacityUnit
	}
	return &spec.GetCapacityResponse{AvailableCapacity: free}, nil
}

// ControllerExpandVolume extends the file; the node service does the rest.
func (s *Server) ControllerExpandVolume(_ context.Context, r *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "no volume or no size is given")
	}
	v, err := s.store.Volume(r.GetVolumeId())
	if err != nil {
		return nil, coded(err)
	}
	bytes, err := volume.Size(v.Kind, r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, status.Error(codes.OutOfRange, err.Error())
	}
	unlock, err := s.locks.Lock(volume.Key(v.Name), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err = s.store.Grow(v.ID(), bytes)
	if err != nil {
		return nil, coded(err)
	}
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: v.Kind != volume.Folder}, nil
}

func coded(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	for _, known := range []struct {
		is   error
		code codes.Code
	}{
		{volume.ErrNotFound, codes.NotFound},
		{volume.ErrConflict, codes.AlreadyExists},
		{volume.ErrNoSpace, codes.ResourceExhausted},
		{volume.ErrUnfit, codes.InvalidArgument},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if errors.Is(err, known.is) {
			code = known.code
		}
	}
	return status.Error(code, err.Error())
}
