package driver

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
)

const (
	launcherContext = "system_u:system_r:container_t:s0:c12,c34"
	launcherFiles   = "system_u:object_r:container_file_t:s0:c12,c34"
)

// selinuxKernel replaces a kernel with SELinux. Instead of a context, it sets that the next executed program may gain
// no privileges: a thread passes this on in the same way, and to no other thread.
type selinuxKernel struct {
	mu       sync.Mutex
	asked    []int
	contexts []string
	labeled  map[string]string
}

func (*selinuxKernel) Known() (bool, error)          { return true, nil }
func (*selinuxKernel) Own() (string, error)          { return "system_u:system_r:spc_t:s0", nil }
func (*selinuxKernel) OfFile(string) (string, error) { return launcherFiles, nil }

func (k *selinuxKernel) OfProcess(pid int) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, pid)
	return launcherContext, nil
}

func (k *selinuxKernel) SetExec(context string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contexts = append(k.contexts, context)
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func (k *selinuxKernel) SetFile(path, label string) error {
	file, err := os.Readlink(path)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.labeled == nil {
		k.labeled = map[string]string{}
	}
	// A file gets its name when it is complete.
	name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), "."), ".")
	k.labeled[name] = label
	return nil
}

// confinedTap is the program that makes a tap. It fails if its thread's context was not set.
func confinedTap(args []string) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n")) {
		fmt.Fprintln(os.Stderr, "the context was not set by the thread that runs this", err)
		return 1
	}
	if err := network.RunTapCommand(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestAGuestOnANodeWithSELinux(t *testing.T) {
	t.Parallel()
	kernel := &selinuxKernel{}
	node, err := nodeselinux.Find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, scheduled("selinux"))
	n.selinux = node
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	// QEMU, as user 107, has opened the tap: it exists and belongs to QEMU.
	running := n.api.await(t, "phase Running", phase(v1.Running))
	if got := running.Status.SelinuxContext; got != launcherContext {
		t.Errorf("status.selinuxContext is %q, want %q", got, launcherContext)
	}
	n.api.update(remove)
	ended := n.api.await(t, "the end", phase(v1.Succeeded))
	h.supervisor.VMIGone(Here, ended.UID)
	h.stop()
	kernel.mu.Lock()
	defer kernel.mu.Unlock()
	if !slices.Equal(kernel.contexts, []string{launcherContext}) {
		t.Errorf("programs were run under %q, want one under the launcher's", kernel.contexts)
	}
	if len(kernel.asked) == 0 || slices.Contains(kernel.asked, os.Getpid()) {
		t.Errorf("the contexts of processes %v were asked for", kernel.asked)
	}
	// virt-launcher makes the other disk, with its own context.
	if want := map[string]string{"init": launcherFiles}; !maps.Equal(kernel.labeled, want) {
		t.Errorf("labeled %v, want %v", kernel.labeled, want)
	}
	if patches, _, _ := n.api.counts(); patches != 2 {
		t.Errorf("a life cost %d patches, want 2 as anywhere: %v", patches, n.api.patches)
	}
}
