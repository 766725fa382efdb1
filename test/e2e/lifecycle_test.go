//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// TestRebootFromInside keeps the same instance: the guest boots again, nothing
// else changes.
func TestRebootFromInside(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newVM(newVMI(ns, "reboots"), v1.RunStrategyAlways))
	boot, instance := g.bootID(), instanceUID(t, ns, "reboots")

	g.tell("reboot")
	g.expect(`drydock guest ready`)

	g = login(t, ns, "reboots")
	if g.bootID() == boot {
		t.Error("the guest did not boot again")
	}
	if instanceUID(t, ns, "reboots") != instance {
		t.Error("a reboot from inside made another VMI; it should be the guest's own affair")
	}
}

// TestPoweroffFromInside shows what each run strategy makes of a guest that
// ends itself.
func TestPoweroffFromInside(t *testing.T) {
	t.Parallel()
	strategies := map[v1.VirtualMachineRunStrategy]struct {
		start bool
		after v1.VirtualMachinePrintableStatus
		again bool
	}{
		v1.RunStrategyAlways:         {again: true},
		v1.RunStrategyRerunOnFailure: {after: v1.VirtualMachineStatusStopped},
		v1.RunStrategyOnce:           {after: v1.VirtualMachineStatusStopped},
		v1.RunStrategyManual:         {start: true, after: v1.VirtualMachineStatusStopped},
	}
	for strategy, want := range strategies {
		t.Run("under "+string(strategy), func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			create(t, newVM(newVMI(ns, "ends"), strategy))
			if want.start {
				do(t, ns, "start", "ends")
			}
			awaitPrintable(t, ns, "ends", v1.VirtualMachineStatusRunning)
			instance := instanceUID(t, ns, "ends")
			login(t, ns, "ends").tell("poweroff")
			if want.again {
				awaitNextInstance(t, ns, "ends", instance)
				return
			}
			awaitPrintable(t, ns, "ends", want.after)
		})
	}
}

// TestStopWithGrace lets the guest end by itself.
func TestStopWithGrace(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vmi := newVMI(ns, "graceful")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(120))
	g := bootVM(t, newVM(vmi, v1.RunStrategyAlways))

	if out := do(t, ns, "stop", "graceful"); !strings.Contains(out, "VM graceful was scheduled to stop") {
		t.Errorf("virtctl stop printed %q", out)
	}
	g.expect(`guest: powering off`)
	awaitPrintable(t, ns, "graceful", v1.VirtualMachineStatusStopped)
	awaitGone(t, objectFor(ns, "graceful"))

	if out := do(t, ns, "start", "graceful"); !strings.Contains(out, "VM graceful was scheduled to start") {
		t.Errorf("virtctl start printed %q", out)
	}
	awaitPrintable(t, ns, "graceful", v1.VirtualMachineStatusRunning)
}

// TestStopByForce ends a guest that does not listen, long before its grace
// period is over.
func TestStopByForce(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vmi := newVMI(ns, "stubborn")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	g := bootVM(t, newVM(vmi, v1.RunStrategyAlways))
	g.run("killall -STOP acpid || killall -9 acpid")

	begin := time.Now()
	do(t, ns, "stop", "stubborn", "--force", "--grace-period=0")
	awaitGone(t, objectFor(ns, "stubborn"))
	t.Logf("the guest was ended by force in %v", time.Since(begin).Round(time.Millisecond))
	awaitPrintable(t, ns, "stubborn", v1.VirtualMachineStatusStopped)
}

// TestPauseStopsTheGuestsTime pauses a guest and sees its clock of running time
// stand still.
func TestPauseStopsTheGuestsTime(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newVM(newVMI(ns, "sleeper"), v1.RunStrategyAlways))

	asked, before := time.Now(), g.uptime()
	do(t, ns, "pause", "vm", "sleeper")
	awaitPrintable(t, ns, "sleeper", v1.VirtualMachineStatusPaused)
	paused := time.Now()
	<-time.After(6 * time.Second) // the pause itself is what is measured
	stood := time.Since(paused)
	do(t, ns, "unpause", "vm", "sleeper")
	awaitPrintable(t, ns, "sleeper", v1.VirtualMachineStatusRunning)
	after := g.uptime()

	// The guest ran for the whole time less the pause; the two readings take a moment.
	if ran, most := after-before, time.Since(asked)-stood+time.Second; ran > most {
		t.Errorf("the guest ran for %v while it can have run for %v at most: it was paused for %v", ran, most, stood)
	}
}

// TestSoftRebootAndReset boots the guest again from outside, asking it and not
// asking it.
func TestSoftRebootAndReset(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := boot(t, newVMI(ns, "again"))
	for _, verb := range []string{"soft-reboot", "reset"} {
		before := g.bootID()
		do(t, ns, verb, "again")
		g.expect(`drydock guest ready`)
		g = login(t, ns, "again")
		if g.bootID() == before {
			t.Errorf("virtctl %s did not boot the guest again", verb)
		}
	}
}

// TestGuestThatPanicsIsSeen fails the VMI, says why, and RerunOnFailure runs it
// again.
func TestGuestThatPanicsIsSeen(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, newVM(newVMI(ns, "panics"), v1.RunStrategyRerunOnFailure))
	awaitPrintable(t, ns, "panics", v1.VirtualMachineStatusRunning)
	instance := instanceUID(t, ns, "panics")
	login(t, ns, "panics").tell("panic")
	awaitNextInstance(t, ns, "panics", instance)
	eventually(t, "an event that names the panic", hasEvent(ns, "panics", "panic"))
}
