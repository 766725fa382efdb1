package nodecpus

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

type bench struct {
	keeper *Keeper
	server client.WithWatch
	writes int
	guests []v1.VirtualMachineInstance
}

func newBench(t *testing.T) *bench {
	t.Helper()
	node := &corev1.Node{}
	node.Name = "node1"
	b := &bench{}
	b.server = fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			b.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	b.keeper = &Keeper{
		Node: "node1", Writer: b.server, State: StateFile(t.TempDir()), Log: logr.Discard(),
		Guests: func(context.Context) ([]v1.VirtualMachineInstance, error) { return b.guests, nil },
	}
	return b
}

func (b *bench) policy(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(b.keeper.State, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) label(t *testing.T) string {
	t.Helper()
	node := &corev1.Node{}
	if err := b.server.Get(t.Context(), client.ObjectKey{Name: "node1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Labels["cpumanager"] != node.Labels["kubevirt.io/cpumanager"] {
		t.Errorf("the names of the label differ: %v", node.Labels)
	}
	return node.Labels["kubevirt.io/cpumanager"]
}

const (
	static1 = `{"policyName":"static","defaultCpuSet":"0","entries":{"pod":{"compute":"1"}},"checksum":1}`
	none    = `{"policyName":"none","defaultCpuSet":"","checksum":1}`
)

func TestTheLabelFollowsTheKubelet(t *testing.T) {
	b := newBench(t)
	for _, step := range []struct {
		given, text, want string
		writes            int
	}{
		{"no state", "", "false", 1},
		{"the static policy", static1, "true", 2},
		{"nothing new", static1, "true", 2},
		{"another policy", none, "false", 3},
	} {
		if step.text != "" {
			b.policy(t, step.text)
		}
		if err := b.keeper.sync(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.given, err)
		}
		if got := b.label(t); got != step.want || b.writes != step.writes {
			t.Errorf("%s: the label is %q after %d writes, want %q after %d", step.given, got, b.writes, step.want, step.writes)
		}
	}
}

// A kubelet that starts again would end the guest.
func TestTheLabelStaysWhileAGuestNeedsIt(t *testing.T) {
	b := newBench(t)
	b.policy(t, static1)
	if err := b.keeper.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pinned := v1.VirtualMachineInstance{}
	pinned.Spec.Domain.CPU = &v1.CPU{DedicatedCPUPlacement: true}
	b.guests = []v1.VirtualMachineInstance{{}, pinned}
	b.policy(t, none)
	if err := b.keeper.sync(t.Context()); err == nil || !strings.Contains(err.Error(), "until that guest is gone") {
		t.Errorf("got %v", err)
	}
	if got := b.label(t); got != "true" {
		t.Errorf("the label is %q while a guest needs it", got)
	}
	b.guests = b.guests[:1]
	if err := b.keeper.sync(t.Context()); err != nil || b.label(t) != "false" {
		t.Errorf("the label is %q when the guest is gone (%v)", b.label(t), err)
	}
}

func TestAHalfWrittenStateChangesNothing(t *testing.T) {
	b := newBench(t)
	b.policy(t, static1[:20])
	if err := b.keeper.sync(t.Context()); err == nil || b.writes != 0 {
		t.Errorf("got %v after %d writes", err, b.writes)
	}
}

func TestTheKeeperLooksAgain(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.keeper.Run(ctx) }()
		synctest.Wait()
		b.policy(t, static1)
		time.Sleep(lookEvery + time.Second)
		synctest.Wait()
		if got := b.label(t); got != "true" {
			t.Errorf("the label is %q", got)
		}
		cancel()
		if err := <-done; err != nil || b.label(t) != "true" {
			t.Errorf("at virt-handler's end the label is %q (%v)", b.label(t), err)
		}
	})
}
