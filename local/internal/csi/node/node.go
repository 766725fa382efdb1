// Package node is the CSI driver's node service: it attaches volumes, which are files, to the pods of one node as
// loop devices and mounts. It must not create or delete a volume. It runs in the node's mount namespace. Its only
// state is in the kernel: the mounts, and the loop devices with their tags.
//
//	NodeStage     block: a loop device       ext4: a loop device, mounted     folder: nothing
//	NodePublish   block: the device's node   ext4, folder: a bind mount       at the pod's path
//
// Each step continues an earlier call, even one that was killed halfway. A filesystem's loop device
// is freed by its unmount; a block volume's by unstaging, or with the node (internal/loop.Detach).
package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/volume"
)

// Server is the node service.
type Server struct {
	spec.UnimplementedNodeServer
	Name string
	// Tag is the prefix of this node's tags.
	Tag   string
	Store volume.Store

	locks csi.Locks
}

// NodeGetCapabilities returns the supported calls.
func (s *Server) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	response := &spec.NodeGetCapabilitiesResponse{}
	for _, t := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

// NodeGetInfo returns name and topology.
func (s *Server) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{
		NodeId:             s.Name,
		AccessibleTopology: &spec.Topology{Segments: map[string]string{csi.Topology: s.Name}},
	}, nil
}

type target struct {
	volume volume.Volume
	// data is a file or folder.
	data string
	path string
}

func (s *Server) tag(id string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // Write of a hash never fails
	return fmt.Sprintf("%s/%x", s.Tag, h.Sum64())
}

// find returns an error for a missing volume, and for one that this node can't reach.
func (s *Server) find(id, path string) (target, error) {
	if id == "" || path == "" {
		return target{}, status.Error(codes.InvalidArgument, "no volume or no path is given")
	}
	v, err := s.Store.Volume(id)
	if errors.Is(err, volume.ErrNotFound) {
		return target{}, status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return target{}, status.Error(codes.Internal, err.Error())
	}
	if v.Disk != s.Name && v.Disk != volume.Shared {
		return target{}, status.Errorf(codes.FailedPrecondition, "volume %s lies on the disk of %s and can't be reached from %s", id, v.Disk, s.Name)
	}
	root, err := s.Store.On(v.Disk)
	if err != nil {
		return target{}, status.Error(codes.Internal, err.Error())
	}
	return target{volume: v, data: volume.Data(root, v.Name), path: path}, nil
}

// NodeStageVolume attaches a loop device and mounts its filesystem.
func (s *Server) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	t, err := s.find(r.GetVolumeId(), r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	unlock, err := s.locks.Lock(t.volume.ID(), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch t.volume.Kind {
	case volume.Block:
		_, err = s.device(t, readOnly(r.GetVolumeCapability()))
	case volume.Ext4:
		err = s.mountExt4(ctx, t, r.GetVolumeCapability())
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.NodeStageVolumeResponse{}, nil
}

func checkCapability(c *spec.VolumeCapability) error {
	if c.GetBlock() == nil && c.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "no volume capability is given")
	}
	return nil
}

func readOnly(c *spec.VolumeCapability) bool {
	mode := c.GetAccessMode().GetMode()
	return mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// device returns the loop device of a block volume. It attaches one if there is none.
func (s *Server) device(t target, readOnly bool) (string, error) {
	found, err := loop.Find(s.tag(t.volume.ID()))
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return found[0], nil
	}
	f, err := loop.Attach(t.data, loop.Mode{Tag: s.tag(t.volume.ID()), ReadOnly: readOnly})
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// The unmount frees the loop device.
func (s *Server) mountExt4(ctx context.Context, t target, c *spec.VolumeCapability) error {
	mounted, err := isMounted(t.path)
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(t.path, 0o750); err != nil {
		return fmt.Errorf("making the mount point: %w", err)
	}
	flags, data := mountOptions(c.GetMount().GetMountFlags())
	if readOnly(c) {
		flags |= unix.MS_RDONLY
	}
	device, err := loop.Attach(t.data, loop.Mode{Tag: s.tag(t.volume.ID()), AutoClear: true, ReadOnly: readOnly(c)})
	if err != nil {
		return err
	}
	defer device.Close()
	if flags&unix.MS_RDONLY == 0 {
		if err := prepareExt4(ctx, device); err != nil {
			return err
		}
	}
	if err := unix.Mount(device.Name(), t.path, "ext4", flags, data); err != nil {
		return fmt.Errorf("mounting volume %s: %w", t.volume.ID(), err)
	}
	return nil
}

// NodeUnstageVolume undoes a partial NodeStageVolume, too. The volume need not exist any more.
func (s *Server) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume or no path is given")
	}
	unlock, err := s.locks.Lock(r.GetVolumeId(), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The unmount frees the loop device of a filesystem.
	if err := errors.Join(unmount(r.GetStagingTargetPath()), loop.Free(s.tag(r.GetVolumeId()))); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume mounts a staged volume for a pod.
func (s *Server) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	t, err := s.find(r.GetVolumeId(), r.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no staging path is given")
	}
	unlock, err := s.locks.Lock(t.volume.ID(), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch t.volume.Kind {
	case volume.Block:
		err = s.publishDevice(t, readOnly(r.GetVolumeCapability()))
	case volume.Ext4:
		err = bind(r.GetStagingTargetPath(), t.path, r.GetReadonly(), nil)
	case volume.Folder:
		err = bind(t.data, t.path, r.GetReadonly() || readOnly(r.GetVolumeCapability()), r.GetVolumeCapability().GetMount().GetMountFlags())
	}
	if err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("publishing volume %s: %v", t.volume.ID(), err))
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

// publishDevice bind-mounts the device node on a file, as the kubelet expects.
func (s *Server) publishDevice(t target, readOnly bool) error {
	device, err := s.device(t, readOnly)
	if err != nil {
		return err
	}
	mounted, err := isMounted(t.path)
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o750); err != nil {
		return fmt.Errorf("making the device's folder: %w", err)
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return fmt.Errorf("making the device's place: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("making the device's place: %w", err)
	}
	if err := unix.Mount(device, t.path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("putting %s at its place: %w", device, err)
	}
	return nil
}

// NodeUnpublishVolume undoes a partial NodePublishVolume, too.
func (s *Server) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume or no path is given")
	}
	unlock, err := s.locks.Lock(r.GetVolumeId(), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = unmount(r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "taking volume %s from its pod: %v", r.GetVolumeId(), err)
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume grows the loop device and the filesystem of a volume whose file has grown.
func (s *Server) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	t, err := s.find(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(t.path); err != nil {
		return nil, status.Errorf(codes.NotFound, "growing volume %s: %v", t.volume.ID(), err)
	}
	unlock, err := s.locks.Lock(t.volume.ID(), "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.expand(t); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: t.volume.Bytes}, nil
}

func (s *Server) expand(t target) error {
	if t.volume.Kind == volume.Folder {
		return nil
	}
	devices, err := loop.Find(s.tag(t.volume.ID()))
	for _, device := range devices {
		err = errors.Join(err, loop.Grow(device))
	}
	if err == nil && t.volume.Kind == volume.Ext4 && len(devices) > 0 {
		err = growExt4(t.path, devices[0])
	}
	return err
}

// NodeGetVolumeStats returns a volume's usage.
func (s *Server) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	t, err := s.find(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(t.path, &st); err != nil {
		return nil, status.Errorf(codes.NotFound, "looking at volume %s: %v", t.volume.ID(), err)
	}
	if t.volume.Kind == volume.Block {
		return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: t.volume.Bytes}}}, nil
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{
			Unit: spec.VolumeUsage_BYTES, Total: int64(st.Blocks) * st.Bsize,
			Available: int64(st.Bavail) * st.Bsize, Used: int64(st.Blocks-st.Bfree) * st.Bsize,
		},
		{Unit: spec.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}}, nil
}
