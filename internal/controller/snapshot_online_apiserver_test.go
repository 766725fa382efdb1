//go:build apiserver

package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// node plays a guest's node: a variable stands for the frozen guest.
type node struct {
	mu              sync.Mutex
	hold            launch.Hold
	holds, releases int
	// refusal is Quiesce's error, or nil. breaks ends the freeze when it is verified.
	refusal error
	breaks  bool
	// cuts counts the VolumeSnapshots, and idle the checks while the guest was frozen and there was none.
	cuts func() int
	idle int
}

func (n *node) Quiesce(_ context.Context, _ *v1.VirtualMachineInstance, holder string, _ time.Duration) (launch.Hold, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refusal != nil {
		return launch.Hold{}, n.refusal
	}
	if !n.hold.Lasts() {
		n.holds++
		n.hold = launch.Hold{Token: fmt.Sprintf("t%d", n.holds), Holder: holder, Method: launch.MethodAgent, Milliseconds: 300}
	}
	return n.hold, nil
}

func (n *node) Held(_ context.Context, _ *v1.VirtualMachineInstance, verify bool) (launch.Hold, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hold.Lasts() && n.cuts != nil && n.cuts() == 0 {
		n.idle++
	}
	if verify && n.breaks && n.hold.Lasts() {
		n.hold.Ended, n.hold.TimedOut = "it was not released before its deadline", true
	}
	return n.hold, nil
}

func (n *node) Release(_ context.Context, _ *v1.VirtualMachineInstance, holder string) (launch.Hold, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.hold.Lasts() || n.hold.Holder != holder {
		return launch.Hold{}, nil
	}
	n.releases++
	n.hold.Ended = "it was released"
	return n.hold, nil
}

func (n *node) set(change func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// A running VM must be snapshotted while its guest is frozen. If the guest was not frozen all the time, or can't be,
// the snapshot must fail, and leave nothing.
func TestAVMThatRunsIsSnapshotted(t *testing.T) {
	n, clock := &node{}, &shiftedClock{}
	w := newWorld(t, clock.apply, func(o *options) { o.guests = n })
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	w.createVMOn("vm", "one", "two")
	w.strategy(v1.RunStrategyAlways)
	w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)

	n.set(func(n *node) { n.cuts = w.volumeSnapshots })
	s := w.snapshotOfTwoDisks(w.vm("vm"))
	n.set(func(n *node) { n.cuts = nil })
	if n.idle > 0 {
		t.Errorf("the guest was held, and looked at %d times before its disks were snapshotted", n.idle)
	}
	if n.holds != 1 || n.releases != 1 {
		t.Errorf("the guest was held %d times, and released %d times", n.holds, n.releases)
	}
	if said := s.Status.SourceIndications; len(said) != 2 || said[1].Indication != snapshotv1.VMSnapshotOnlineSnapshotIndication ||
		said[0].Indication != snapshotv1.VMSnapshotGuestAgentIndication || !strings.Contains(said[0].Message, "0.30 s") {
		t.Errorf("the snapshot says %+v", said)
	}

	fails := func(name, why string) {
		t.Helper()
		s := w.awaitSnapshot(name, snapshotv1.Failed)
		if got := *s.Status.Error.Message; !strings.Contains(got, why) {
			t.Errorf("the snapshot %s says %q, want %q", name, got, why)
		}
		w.eventually("the VM to be unlocked, and one content to be left", func() (bool, string) {
			return w.vm("vm").Status.SnapshotInProgress == nil && len(w.contents()) == 1, fmt.Sprintf("%d contents", len(w.contents()))
		})
	}
	n.set(func(n *node) { n.breaks = true })
	w.snapshot("breaks", "vm")
	fails("breaks", "went on before all of its disks were snapshotted: it was not released before its deadline")

	n.set(func(n *node) {
		n.breaks = false
		n.refusal = apierrors.NewConflict(v1.Resource("virtualmachineinstances"), "vm", fmt.Errorf("it is being migrated"))
	})
	w.snapshot("waits", "vm", func(s *snapshotv1.VirtualMachineSnapshot) {
		s.Spec.FailureDeadline = &metav1.Duration{Duration: time.Minute}
	})
	clock.expire(w, "waits", "it is being migrated")
	fails("waits", "it is being migrated")
	clock.set(0)

	n.set(func(n *node) {
		n.refusal = &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Reason: nodeapi.NotHeld, Message: "the agent hangs"}}
	})
	w.snapshot("hangs", "vm")
	fails("hangs", "could not be held still: the agent hangs")
	w.snapshotOfAVMThatIsDeleted(n)
}

func (w *world) snapshotOfAVMThatIsDeleted(n *node) {
	w.t.Helper()
	n.set(func(n *node) {
		n.refusal = apierrors.NewConflict(v1.Resource("virtualmachineinstances"), "vm", fmt.Errorf("it is being migrated"))
	})
	before := len(w.contents())
	w.snapshot("orphan", "vm")
	w.eventually("the VM to be locked, and a content", func() (bool, string) {
		by, contents := w.vm("vm").Status.SnapshotInProgress, len(w.contents())
		return by != nil && *by == "orphan" && contents == before+1, fmt.Sprintf("locked by %v, %d contents", by, contents)
	})
	w.do("deleting the VM", w.client.Delete(w.ctx, w.vm("vm")))
	if got := *w.awaitSnapshot("orphan", snapshotv1.Failed).Status.Error.Message; !strings.Contains(got, "the VM vm is being deleted") && !strings.Contains(got, "the VM vm was deleted") {
		w.t.Errorf("the snapshot of a VM that was deleted says %q", got)
	}
	w.eventually("its content to go", func() (bool, string) {
		return len(w.contents()) == before, fmt.Sprintf("%d contents", len(w.contents()))
	})
	w.remove(&snapshotv1.VirtualMachineSnapshot{}, "orphan")
}
