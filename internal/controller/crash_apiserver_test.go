//go:build apiserver

package controller

import (
	"fmt"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// TestTheLoopsMayEndAtAnyMoment ends the loops again and again while VMs start,
// each time a little later, and starts them anew with empty memories.
func TestTheLoopsMayEndAtAnyMoment(t *testing.T) {
	const vms = 8
	w := newWorld(t)
	for i := range vms {
		w.createVM(fmt.Sprintf("vm-%d", i), v1.RunStrategyAlways)
	}
	for after := range 6 {
		// The moment is what is being varied; nothing is waited for.
		time.Sleep(time.Duration(after) * 15 * time.Millisecond)
		w.stop()
		w.startLoops()
	}
	uids := map[string]bool{}
	for i := range vms {
		name := fmt.Sprintf("vm-%d", i)
		w.run(name)
		w.awaitPrintable(name, v1.VirtualMachineStatusRunning)
		uids[string(w.vmi(name).UID)] = true
	}
	w.quiet()
	if pods := w.pods(); len(pods) != vms || len(uids) != vms {
		t.Errorf("%d VMs have %d VMIs and %d launcher pods", vms, len(uids), len(pods))
	}
	for i := range vms {
		if vmi := w.vmi(fmt.Sprintf("vm-%d", i)); vmi.Status.Phase != v1.Running {
			t.Errorf("VMI %s is in phase %s", vmi.Name, vmi.Status.Phase)
		}
	}
}
