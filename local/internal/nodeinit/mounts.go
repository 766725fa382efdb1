package nodeinit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/podnetwork"
	"drydock.dev/local/internal/render"
)

type bind struct{ from, to string }

func mountAll(c layout.Cluster, node string) error {
	// First hide the node's mounts from the host, then share them within the node, because a privileged pod may use
	// mount propagation Bidirectional. Unmounts on the host propagate to the node: a copy would keep its device in use.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separating the mounts of %s from the host's: %w", node, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the mounts within %s: %w", node, err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc on %s: %w", node, err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run on %s: %w", node, err)
	}
	if err := os.MkdirAll("/run/lock", 0o1777); err != nil {
		return fmt.Errorf("making /run/lock on %s: %w", node, err)
	}
	for _, b := range []bind{
		{c.Node(node, "kubelet"), render.KubeletRoot},
		{c.Node(node, "containerd"), render.ContainerdRoot},
		{c.Node(node, "log", "pods"), "/var/log/pods"},
		{c.Node(node, "log", "containers"), "/var/log/containers"},
		{c.Node(node, "cni", "net.d"), render.CNIConfig},
		{c.Node(node, "cni", "bin"), render.CNIBin},
		{c.Node(node, "srv"), "/srv"},
		{c.Shared(), "/srv/shared"},
	} {
		if err := errors.Join(makeDir(b.from), makeDir(b.to)); err != nil {
			return err
		}
		if err := unix.Mount(b.from, b.to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", b.to, node, err)
		}
	}
	return nil
}

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	return nil
}

// plugins are the CNI plugins that network configurations name. Multus is not among them and is not
// copied.
var plugins = []string{podnetwork.Program, "bridge", "host-local", "loopback", "portmap", "static"}
