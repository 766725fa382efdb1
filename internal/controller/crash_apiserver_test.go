//go:build apiserver

package controller

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restartLoops restarts the loops with empty memories, as a new virt-controller.
func (w *world) restartLoops() {
	w.t.Helper()
	w.stop()
	w.startLoops()
}

// goesBy restarts the loops with a clock that is this much later.
func (w *world) goesBy(d time.Duration) {
	w.t.Helper()
	w.options.now = func() time.Time { return time.Now().Add(d) }
	w.restartLoops()
}

// interrupt restarts the loops this many times, each time a step later.
func (w *world) interrupt(times int, step time.Duration) {
	w.t.Helper()
	for after := range times {
		// The test varies the moment; it waits for nothing.
		time.Sleep(time.Duration(after) * step)
		w.restartLoops()
	}
}

// TestTheLoopsMayEndAtAnyMoment restarts the loops again and again with empty memories while VMs start, each time a
// little later. Every VM must run with one launcher pod.
func TestTheLoopsMayEndAtAnyMoment(t *testing.T) {
	const vms = 8
	w := newWorld(t)
	for i := range vms {
		w.createVM(fmt.Sprintf("vm-%d", i), v1.RunStrategyAlways)
	}
	w.interrupt(6, 15*time.Millisecond)
	uids := map[string]bool{}
	for i := range vms {
		name := fmt.Sprintf("vm-%d", i)
		w.run(name)
		w.awaitPrintable(name, v1.VirtualMachineStatusRunning)
		uids[string(w.vmi(name).UID)] = true
	}
	w.awaitSettled()
	if pods := w.pods(); len(pods) != vms || len(uids) != vms {
		t.Errorf("%d VMs have %d VMIs and %d launcher pods", vms, len(uids), len(pods))
	}
	for i := range vms {
		if vmi := w.vmi(fmt.Sprintf("vm-%d", i)); vmi.Status.Phase != v1.Running {
			t.Errorf("VMI %s is in phase %s", vmi.Name, vmi.Status.Phase)
		}
	}
}

// TestALeaderThatWasKilledNeedNotWaitForItsOwnLease starts the loops with the lease that a killed process of the same
// pod left. They must start at once.
func TestALeaderThatWasKilledNeedNotWaitForItsOwnLease(t *testing.T) {
	w := newWorld(t)
	w.createVMI("before")
	w.awaitPhase("before", v1.Scheduling)
	w.stop()
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: w.namespace, Name: leaseName}
	w.do("reading the lease", w.client.Get(w.ctx, key, &lease))
	lease.Spec.HolderIdentity = &w.options.identity
	// A loop that waits for the lease's end fails.
	lease.Spec.LeaseDurationSeconds = new(int32(10 * patience / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	w.do("leaving the lease as a killed process does", w.client.Update(w.ctx, &lease))

	w.startLoops()
	w.createVMI("after")
	w.awaitPhase("after", v1.Scheduling)
}
