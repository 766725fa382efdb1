//go:build system

package csi_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/csi/controller"
	"drydock.dev/local/internal/csi/node"
	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/loop/looptest"
	"drydock.dev/local/internal/volume"
)

// TestSanity runs the community's tests of the CSI specification, for volumes of either scope as block device and
// as filesystem.
func TestSanity(t *testing.T) {
	dir := t.TempDir()
	// A killed run leaves its loop devices: this run has another tag.
	tag := fmt.Sprintf("drydock:sanity-%d", os.Getpid())
	socket := serve(t, dir, tag)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the tests are over
	for _, scope := range []string{csi.ScopeNode, csi.ScopeShared} {
		for _, access := range []string{"mount", "block"} {
			config := sanity.NewTestConfig()
			config.TargetPath = filepath.Join(dir, "target-"+scope+access)
			config.StagingPath = filepath.Join(dir, "staging-"+scope+access)
			config.TestVolumeSize = 32 << 20
			config.TestVolumeExpandSize = 64 << 20
			config.TestVolumeAccessType = access
			config.TestVolumeParameters = map[string]string{csi.Scope: scope}
			config.IdempotentCount = 2
			ginkgo.Describe(scope+" "+access, func() {
				// The suite's own connect function misses a connection that is faster than its poll, and waits
				// for a minute.
				suite := sanity.GinkgoTest(&config)
				suite.Conn, suite.ControllerConn = conn, conn
			})
		}
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "CSI driver")
	looptest.AwaitNone(t, func() ([]string, error) { return loop.Under(tag, dir) })
}

func serve(t *testing.T, dir, tag string) (socket string) {
	t.Helper()
	store := volume.Store{Disks: func() (map[string]string, error) {
		return map[string]string{"node1": filepath.Join(dir, "node1"), volume.Shared: filepath.Join(dir, "shared")}, nil
	}}
	socket = filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		err := csi.Serve(ctx, socket, func(s *grpc.Server) {
			spec.RegisterIdentityServer(s, csi.Identity{})
			spec.RegisterControllerServer(s, controller.New(store))
			spec.RegisterNodeServer(s, &node.Server{Name: "node1", Tag: tag, Store: store})
		})
		if err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		// A failed test may have left a mount in the folder that will be deleted.
		for _, pattern := range []string{"target-*/*", "staging-*"} {
			left, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, path := range left {
				_ = unix.Unmount(path, unix.MNT_DETACH)
			}
		}
		if err := loop.Detach(context.Background(), tag, dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	// A call fails at once if nobody listens yet.
	for deadline, tick := time.Now().Add(time.Minute), time.Tick(time.Millisecond); ; <-tick {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close() // the test only waited for it
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for the driver: %v", err)
		}
	}
}
