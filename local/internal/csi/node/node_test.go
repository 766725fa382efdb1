//go:build system

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/volume"
)

func mounted(t *testing.T, grow int64) (s *Server, id, path string) {
	t.Helper()
	dir := t.TempDir()
	store := volume.Store{Disks: func() (map[string]string, error) {
		return map[string]string{"node1": filepath.Join(dir, "disk")}, nil
	}}
	made, err := store.Create(context.Background(), volume.Volume{Name: "v", Disk: "node1", Kind: volume.Ext4, Bytes: 16 << 20}, nil)
	if err == nil {
		made, err = store.Grow(made.ID(), grow)
	}
	if err != nil {
		t.Fatal(err)
	}
	s = &Server{Name: "node1", Tag: fmt.Sprintf("drydock:%d-%s", os.Getpid(), t.Name()), Store: store}
	path = filepath.Join(dir, "staged")
	writer := &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	if _, err := s.NodeStageVolume(context.Background(), &spec.NodeStageVolumeRequest{VolumeId: made.ID(), StagingTargetPath: path, VolumeCapability: writer}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := s.NodeUnstageVolume(context.Background(), &spec.NodeUnstageVolumeRequest{VolumeId: made.ID(), StagingTargetPath: path})
		if err != nil {
			t.Error(err)
		}
		if err := loop.Detach(context.Background(), s.Tag, dir); err != nil {
			t.Error(err)
		}
	})
	return s, made.ID(), path
}

func write(path string) chan error {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(path, "file"), []byte("text"), 0o600) }()
	return done
}

func TestHoldStopsWriters(t *testing.T) {
	s, id, path := mounted(t, 0)
	for name, end := range map[string]func(release func()){
		"until it is released": func(release func()) { release() },
		"until a process that starts anew finds it": func(release func()) {
			next := &Server{Name: s.Name, Tag: s.Tag, Store: s.Store}
			if err := next.Thaw(); err != nil {
				t.Error(err)
			}
			release()
		},
	} {
		release, err := s.Hold(id)
		if err != nil {
			t.Fatal(err)
		}
		done := write(path)
		select {
		case err := <-done:
			t.Errorf("%s: the filesystem is written to while it is held: %v", name, err)
		case <-time.After(100 * time.Millisecond): // long enough to see that nothing happens
		}
		end(release)
		if err := <-done; err != nil {
			t.Errorf("%s: writing afterwards: %v", name, err)
		}
	}
}

func capacity(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

func TestFilesystemGrows(t *testing.T) {
	facts, err := host.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s, id, path := mounted(t, 64<<20)
	if got := capacity(t, path); got < 64<<20 {
		t.Errorf("grown to 64 MiB while it was not mounted, it has %d bytes", got)
	}
	if _, err := s.Store.Grow(id, 128<<20); err != nil {
		t.Fatal(err)
	}
	_, err = s.NodeExpandVolume(context.Background(), &spec.NodeExpandVolumeRequest{VolumeId: id, VolumePath: path})
	if !facts.SysResource {
		if err == nil || !strings.Contains(err.Error(), "it grows when the volume is mounted the next time") {
			t.Errorf("growing while it is mounted, without the right to: %v", err)
		}
		return
	}
	if got := capacity(t, path); err != nil || got < 128<<20 {
		t.Errorf("grown to 128 MiB while it is mounted, it has %d bytes: %v", got, err)
	}
}
