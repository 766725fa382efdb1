package nodepostcopy

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/contracts/layout"
)

// bench is a node with a keeper.
type bench struct {
	keeper *Keeper
	server client.Client
	// A container runtime looks there.
	file    string
	refusal error
	// "-" is the label's removal.
	writes []string
	// filters and kernel describe the kernel.
	filters bool
	kernel  error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	kubelet := t.TempDir()
	b := &bench{filters: true, file: filepath.Join(kubelet, "seccomp", "drydock", "launcher-userfaultfd.json")}
	node := &corev1.Node{}
	node.Name = "node1"
	node.Labels = map[string]string{"zone": "a"}
	b.server = fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if b.refusal != nil {
				return b.refusal
			}
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			value, there := o.GetLabels()[layout.PostCopyLabel]
			if !there {
				value = "-"
			}
			b.writes = append(b.writes, value)
			if _, err := os.Stat(b.file); there && err != nil {
				t.Errorf("the label says %q where the file is not", value)
			}
			return nil
		},
	}).Build()
	b.keeper = &Keeper{
		Node: "node1", Writer: b.server, Profile: ProfileIn(kubelet), Log: logr.Discard(),
		Filters: func() bool { return b.filters }, Try: func() error { return b.kernel },
	}
	return b
}

func (b *bench) label(t *testing.T) string {
	t.Helper()
	node := &corev1.Node{}
	if err := b.server.Get(context.Background(), client.ObjectKey{Name: "node1"}, node); err != nil {
		t.Fatal(err)
	}
	return node.Labels[layout.PostCopyLabel]
}

func (b *bench) there() bool {
	has, err := os.ReadFile(b.file)
	return err == nil && string(has) == string(profile)
}

func TestTheLabelSaysWhatTheNodeCanDo(t *testing.T) {
	b := newBench(t)
	refuses := errors.New("the kernel refuses")
	folder := filepath.Dir(b.file)
	for _, step := range []struct {
		what   string
		by     func() error
		label  string
		there  bool
		writes []string
	}{
		{"the kernel refuses", func() error { b.kernel = refuses; return nil }, "unusable", true, []string{"unusable"}},
		{"nothing has changed", func() error { return nil }, "unusable", true, nil},
		{"the administrator has set the sysctl", func() error { b.kernel = nil; return nil }, "usable", true, []string{"usable"}},
		{"the API server is away", func() error { b.kernel, b.refusal = refuses, errors.New("no answer"); return nil }, "usable", true, nil},
		{"it is back", func() error { b.refusal = nil; return nil }, "unusable", true, []string{"unusable"}},
		{"the file was removed", func() error { return os.Remove(b.file) }, "unusable", true, []string{"unusable"}},
		{"somebody has written into it", func() error { return os.WriteFile(b.file, []byte("{}"), 0o600) }, "unusable", true, []string{"unusable"}},
		{"it can't be written", func() error {
			return errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600))
		}, "", false, []string{"-"}},
		{"it can be written again", func() error { return os.Remove(folder) }, "unusable", true, []string{"unusable"}},
		{"the kernel filters nothing", func() error { b.filters = false; return nil }, "", true, []string{"-"}},
	} {
		b.writes = nil
		if err := step.by(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		b.keeper.syncLabel(t.Context())
		if label := b.label(t); label != step.label || b.there() != step.there || !slices.Equal(b.writes, step.writes) {
			t.Errorf("%s: label %q, the file is there: %v, written %q; want %q, %v, %q", step.what, label, b.there(), b.writes, step.label, step.there, step.writes)
		}
	}
}

// The container runtime reads the file at any moment, perhaps as another user.
func TestTheFileIsWhole(t *testing.T) {
	b := newBench(t)
	b.keeper.syncLabel(t.Context())
	info, err := os.Stat(b.file)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Fatalf("it is %v, %v", info, err)
	}
	entries, err := os.ReadDir(filepath.Dir(b.file))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside it there is %v, %v", entries, err)
	}
}

func TestTheFileGoesWithVirtHandler(t *testing.T) {
	gone := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node1", errors.New("no such role"))
	for name, c := range map[string]struct {
		refusal error
		label   string
		there   bool
	}{
		"it ends":                       {nil, "", false},
		"Drydock was removed":           {gone, "usable", false},
		"nobody answers for the label":  {errors.New("connection refused"), "usable", true},
		"the API server takes too long": {context.DeadlineExceeded, "usable", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- b.keeper.Run(ctx) }()
				synctest.Wait()
				if b.label(t) != "usable" || !b.there() {
					t.Fatal("it has not begun")
				}
				b.refusal = c.refusal
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			if label := b.label(t); label != c.label || b.there() != c.there {
				t.Errorf("the label is %q, the file is there: %v; want %q and %v", label, b.there(), c.label, c.there)
			}
		})
	}
}

// A virt-handler that ends late has removed the next one's file.
func TestWhatAnotherHasTakenAwayComesBack(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.keeper.Run(ctx) }()
		synctest.Wait()
		earlier := *b.keeper
		if err := earlier.cleanUp(ctx); err != nil {
			t.Fatal(err)
		}
		if b.label(t) != "" || b.there() {
			t.Fatal("the earlier one has left something")
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		if b.label(t) != "usable" || !b.there() {
			t.Errorf("the label is %q, the file is there: %v", b.label(t), b.there())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The kernel's filter must allow a launcher's system calls, and userfaultfd.
func TestTheProfileAllowsUserfaultfdAndNoMount(t *testing.T) {
	var p struct {
		DefaultAction string
		Architectures []string
		Syscalls      []struct {
			Names  []string
			Action string
			Args   []any
		}
	}
	if err := json.Unmarshal(profile, &p); err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != "SCMP_ACT_ERRNO" || !slices.Contains(p.Architectures, "SCMP_ARCH_X86_64") {
		t.Errorf("by default it does %s, on %v", p.DefaultAction, p.Architectures)
	}
	allowed := map[string]bool{}
	for _, s := range p.Syscalls {
		for _, name := range s.Names {
			allowed[name] = allowed[name] || s.Action == "SCMP_ACT_ALLOW" && len(s.Args) == 0
		}
	}
	for _, name := range []string{"userfaultfd", "execve", "mmap", "ioctl", "munlockall", "futex"} {
		if !allowed[name] {
			t.Errorf("%s is not allowed", name)
		}
	}
	for _, name := range []string{"mount", "setns", "unshare", "bpf", "perf_event_open", "keyctl", "init_module", "clone3", "open_by_handle_at", "io_uring_setup"} {
		if allowed[name] {
			t.Errorf("%s is allowed", name)
		}
	}
}

// The kernel must answer as to a launcher, whatever virt-handler may do itself.
func TestTheKernelIsAskedWithoutCapabilities(t *testing.T) {
	set, err := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd")
	if err != nil {
		t.Skipf("the kernel has no userfaultfd, or no choice of who may have it: %v", err)
	}
	err = Try()
	switch usable := strings.TrimSpace(string(set)) == "1"; {
	case usable && err != nil:
		t.Errorf("the sysctl is 1: %v", err)
	case !usable && (err == nil || !strings.Contains(err.Error(), "set the sysctl vm.unprivileged_userfaultfd to 1")):
		t.Errorf("the sysctl is 0: %v", err)
	}
	// The question was asked without capabilities, which this process must still have.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && has[0].Effective == 0 {
		t.Error("the process has lost its capabilities")
	}
}
