package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// asContainerd turns the test's own program into containerd.
const asContainerd = "TEST_AS_CONTAINERD"

func TestMain(m *testing.M) {
	if os.Getenv(asContainerd) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const nodeConfig = "../../internal/render/testdata/containerd-modern.toml"

// withoutAddress is the plugin that does not start because no TCP port is configured: it comes with the one for the
// socket.
const withoutAddress = "grpc-tcp"

const deadline = 2 * time.Minute

// A plugin's error says what it lacks.
func TestEveryPluginStartsWithANodesConfiguration(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	client := start(ctx, t)
	answer, err := client.IntrospectionService().Plugins(ctx)
	if err != nil {
		t.Fatalf("asking for the plugins: %v", err)
	}
	found := map[string]bool{}
	for _, p := range answer.Plugins {
		found[p.Type+"."+p.ID] = true
		if p.InitErr != nil && p.ID != withoutAddress {
			t.Errorf("the plugin %s.%s did not start: %s", p.Type, p.ID, p.InitErr.Message)
		}
	}
	for _, want := range []string{
		"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
		"io.containerd.snapshotter.v1.overlayfs", "io.containerd.differ.v1.walking", "io.containerd.transfer.v1.local",
		"io.containerd.runtime.v2.task", "io.containerd.gc.v1.scheduler", "io.containerd.podsandbox.controller.v1.podsandbox",
	} {
		if !found[want] && !found[want+"."+lastWord(want)] {
			t.Errorf("there is no plugin %s", want)
		}
	}
	for name := range found {
		for _, left := range []string{"zfs", "btrfs", "devmapper", "erofs", "blockfile", "tracing", "nri"} {
			if strings.Contains(name, left) {
				t.Errorf("the plugin %s is linked, which no node uses", name)
			}
		}
	}
}

func lastWord(name string) string { return name[strings.LastIndex(name, ".")+1:] }

func TestTheVersionIsContainerds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--version")
	cmd.Env = append(os.Environ(), asContainerd+"=1")
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "containerd github.com/containerd/containerd/v2 2.") {
		t.Errorf("it says %q, %v", out, err)
	}
}

func start(ctx context.Context, t *testing.T) *containerd.Client {
	t.Helper()
	config, err := os.ReadFile(nodeConfig)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	text := strings.NewReplacer(
		`"/var/lib/containerd"`, `"`+filepath.Join(folder, "root")+`"`,
		`"/run/containerd"`, `"`+filepath.Join(folder, "state")+`"`,
		`"/run/containerd/containerd.sock"`, `"`+filepath.Join(folder, "sock")+`"`,
	).Replace(string(config))
	file := filepath.Join(folder, "containerd.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(ctx, os.Args[0], "--config="+file, "--log-level=warn")
	cmd.Env = append(os.Environ(), asContainerd+"=1")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd said:\n%s", said.String())
		}
	})
	client, err := containerd.New(filepath.Join(folder, "sock"), containerd.WithTimeout(deadline))
	if err != nil {
		t.Fatalf("connecting to containerd: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if serving, err := client.IsServing(ctx); err != nil || !serving {
		t.Fatalf("containerd does not serve: %v", err)
	}
	return client
}
