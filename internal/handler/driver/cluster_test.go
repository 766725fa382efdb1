package driver

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// hung is an API server that does not answer.
type hung struct{ Cluster }

func (hung) VMI(ctx context.Context, _, _ string) (*v1.VirtualMachineInstance, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) PatchVMI(ctx context.Context, _ *v1.VirtualMachineInstance, _ []byte) (*v1.VirtualMachineInstance, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Pod(ctx context.Context, _, _ string, _ types.UID) (*corev1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Claim(ctx context.Context, _, _ string) (*corev1.PersistentVolumeClaim, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) PersistentVolume(ctx context.Context, _ string) (*corev1.PersistentVolume, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestNoCallOfADriverWaitsForEver(t *testing.T) {
	of := NewSupervisor(&Env{Cluster: hung{}}).env.Cluster
	calls := map[string]func(context.Context) error{
		"VMI":              func(ctx context.Context) error { _, err := of.VMI(ctx, "shop", "web"); return err },
		"PatchVMI":         func(ctx context.Context) error { _, err := of.PatchVMI(ctx, nil, nil); return err },
		"Pod":              func(ctx context.Context) error { _, err := of.Pod(ctx, "shop", "pod", "u"); return err },
		"Claim":            func(ctx context.Context) error { _, err := of.Claim(ctx, "shop", "data"); return err },
		"PersistentVolume": func(ctx context.Context) error { _, err := of.PersistentVolume(ctx, "pv"); return err },
	}
	for m := range reflect.TypeFor[Cluster]().Methods() {
		if _, is := calls[m.Name]; !is && m.Name != "Event" { // which never blocks
			t.Errorf("%s is not tested", m.Name)
		}
	}
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if err := call(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != apiTimeout {
				t.Errorf("%s: %v after %v, want the end after %v", name, err, time.Since(began), apiTimeout)
			}
		})
	}
	if apiTimeout > concern.CommandTimeout {
		t.Errorf("a call may take %v, longer than QEMU's answers", apiTimeout)
	}
}

func TestAnAPIServerThatDoesNotAnswerKeepsNobodyFromTheGuest(t *testing.T) {
	t.Parallel()
	n, m, h := driven(t, "hung")
	guest := n.machine(h, "hung")
	n.api.hang(hangs)
	m.qemu.EnterRunState("watchdog", "STOP")
	n.api.awaitUnanswered(t)
	if err := guest.Unpause(t.Context()); err != nil || m.qemu.RunState() != runstate.Running {
		t.Errorf("the guest is %s: %v", m.qemu.RunState(), err)
	}
	if err := guest.Pause(t.Context()); err != nil {
		t.Error(err)
	}
	n.api.hang(answers)
	n.api.await(t, "a paused guest", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
}

// The driver can't know whether a write without an answer has taken effect.
func TestAWriteWithoutAnAnswerIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]hanging{"it has taken effect": hangsAfterwards, "it has not": hangs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newModelNode(t, scheduled("unheard"))
			m := n.launcher()
			n.api.hang(how)
			n.startHandler(n.newPod(n.api.vmi))
			n.api.awaitUnanswered(t)
			n.api.hang(answers)
			n.api.await(t, "a guest that runs", well)
			const started = "Normal Started: VirtualMachineInstance started."
			n.api.await(t, "its event", func(*v1.VirtualMachineInstance) bool { return slices.Contains(n.api.events, started) })
			m.qemu.EnterRunState("watchdog", "STOP")
			n.api.await(t, "another state", reports(runstate.ReasonPausedByWatchdog, runstate.ReasonPausedByWatchdog))
			if _, _, events := n.api.counts(); len(events) != 1 {
				t.Errorf("events: %q", events)
			}
		})
	}
}
