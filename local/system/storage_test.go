//go:build system

package system

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/loop"
)

const mib = 1 << 20

var written = map[[2]string]string{
	{"keeper", "/own/file"}:    "own files",
	{"keeper", "/dev/own"}:     "own device",
	{"keeper", "/shared/file"}: "shared files",
	{"keeper", "/dev/shared"}:  "shared device",
	{"guest", "/shared/file"}:  "shared files",
	{"guest", "/dev/shared"}:   "shared device",
}

func volumesServe(t *testing.T, c *cluster) {
	c.drydock("kubectl", "apply", "-f", "volumes.yaml", "-f", "keepers.yaml")
	c.drydock("kubectl", "wait", "--for=condition=Ready", "pod/keeper", "pod/guest", "--timeout="+patience.String())
	for at, text := range written {
		if at[0] == "keeper" {
			c.mustExec(at[0], "agent", "put", at[1], text)
		}
	}
	c.eventually("what was written is there, for both nodes", c.volumesHold)
	for path, want := range map[string]int64{"/dev/own": 64 * mib, "/dev/shared": 64 * mib} {
		if got := c.size("keeper", path); got != want {
			t.Errorf("%s has %d bytes, want %d", path, got, want)
		}
	}
	// The filesystem's own overhead comes on top of the requested size.
	if got := c.size("keeper", "/own"); got < 64*mib || got > 76*mib {
		t.Errorf("the filesystem on a volume of 64 MiB has %d bytes", got)
	}
	volumes, err := c.client().CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Items {
		own := strings.HasPrefix(v.Spec.ClaimRef.Name, "own-")
		if bound := v.Spec.NodeAffinity != nil && strings.Contains(v.Spec.NodeAffinity.Required.String(), "node2"); bound != own {
			t.Errorf("volume of claim %s: bound to node2 is %t, want %t", v.Spec.ClaimRef.Name, bound, own)
		}
	}
}

func (c *cluster) volumesHold() error {
	for at, want := range written {
		got, err := c.exec(at[0], "agent", "head", at[1], strconv.Itoa(len(want)))
		if err != nil || got != want {
			return fmt.Errorf("pod %s reads %q from %s, want %q: %w", at[0], got, at[1], want, err)
		}
	}
	return nil
}

func (c *cluster) size(pod, path string) int64 {
	c.t.Helper()
	bytes, err := strconv.ParseInt(c.mustExec(pod, "agent", "size", path), 10, 64)
	if err != nil {
		c.t.Fatalf("the size of %s in %s: %v", path, pod, err)
	}
	return bytes
}

func volumesAreCopied(t *testing.T, c *cluster) {
	c.drydock("kubectl", "apply", "-f", "copies.yaml")
	c.drydock("kubectl", "wait", "--for=condition=Ready", "pod/copies", "--timeout="+patience.String())
	// Later changes of the originals must not appear in the copies.
	c.mustExec("keeper", "agent", "put", "/own/file", "later")
	c.mustExec("keeper", "agent", "put", "/dev/own", "later")
	for path, want := range map[string]string{"/restored/file": "own files", "/dev/cloned": "own device"} {
		if got := c.mustExec("copies", "agent", "head", path, strconv.Itoa(len(want))); got != want {
			t.Errorf("the copy at %s holds %q, want %q", path, got, want)
		}
	}
	if got := c.size("copies", "/restored"); got < 128*mib {
		t.Errorf("the filesystem of 64 MiB restored to 128 MiB has %d bytes", got)
	}
	c.mustExec("keeper", "agent", "put", "/own/file", "own files")
	c.mustExec("keeper", "agent", "put", "/dev/own", "own device")
	c.drydock("kubectl", "delete", "-f", "copies.yaml", "--wait")
	c.eventually("the copies are gone from the disk", func() error {
		out, err := exec.Command("find", c.Dir, "-path", "*/csi/*", "-name", "volume.json").Output()
		if left := strings.Count(string(out), "\n"); err != nil || left != 4 {
			return fmt.Errorf("%d volumes and snapshots are there, want 4: %s %w", left, out, err)
		}
		return nil
	})
}

func volumesGrow(t *testing.T, c *cluster) {
	facts, err := host.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{"own-files", "own-device"} {
		c.drydock("kubectl", "patch", "pvc", claim, "-p", `{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`)
	}
	grown := func(path string, least int64) func() error {
		return func() error {
			if got := c.size("keeper", path); got < least {
				return fmt.Errorf("it has %d bytes, want %d", got, least)
			}
			return nil
		}
	}
	c.eventually("the device grows under its pod", grown("/dev/own", 128*mib))
	if facts.SysResource {
		c.eventually("the filesystem grows under its pod", grown("/own", 128*mib))
	}
	// Elsewhere it grows at the next mount. In any case the next pod must find everything.
	c.drydock("kubectl", "delete", "pod", "keeper", "--wait")
	c.drydock("kubectl", "apply", "-f", "keepers.yaml")
	c.drydock("kubectl", "wait", "--for=condition=Ready", "pod/keeper", "--timeout="+patience.String())
	c.eventually("the filesystem is larger for the next pod", grown("/own", 128*mib))
	c.eventually("the volumes kept their data", c.volumesHold)
}

func volumesGo(t *testing.T, c *cluster) {
	c.drydock("kubectl", "delete", "-f", "keepers.yaml", "-f", "volumes.yaml", "--wait")
	c.eventually("no volume, file or loop device is left", func() error {
		volumes, err := c.client().CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		devices, err := loop.Under(c.LoopTag(""), c.Dir)
		if err != nil {
			return err
		}
		files, err := exec.Command("find", c.Dir, "-path", "*/csi/*", "-name", "volume.json").Output()
		if len(volumes.Items)+len(devices)+len(files) > 0 {
			return fmt.Errorf("there are %d volumes, the devices %q and the files %q", len(volumes.Items), devices, files)
		}
		return err
	})
}
