//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheLifeOfAVM runs all lifecycle requests on one VM's guest. vmcontroller has the table of run strategies,
// and test/machine tests the end of QEMU; only a guest in a real pod shows that both fit together, and that no
// guest starts again against its strategy. See also internal/controller's TestAGuestThatPowersOff.
func TestTheLifeOfAVM(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vmi := newVMI(ns, "lives")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	create(t, newVM(vmi, v1.RunStrategyRerunOnFailure))
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusRunning)
	inTurn(t,
		chapter{"a reboot from inside keeps the instance", func(t *testing.T) { rebootsFromInside(t, ns) }},
		chapter{"it is booted again from outside, asked or not", func(t *testing.T) { rebootsFromOutside(t, ns) }},
		chapter{"its time stands still while it is paused", func(t *testing.T) { pauses(t, ns) }},
		chapter{"a panic is told, and under RerunOnFailure another instance runs", func(t *testing.T) { panics(t, ns) }},
		chapter{"it powers off, which under RerunOnFailure is the end", func(t *testing.T) {
			login(t, ns, "lives").tell("poweroff")
			awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusStopped)
		}},
		chapter{"under Always it is started; it is stopped, and powers off itself", func(t *testing.T) { stopsWithGrace(t, ns) }},
		chapter{"it does not listen, and is stopped by force", func(t *testing.T) { stopsByForce(t, ns) }},
	)
}

func rebootsFromInside(t *testing.T, ns string) {
	t.Helper()
	g := login(t, ns, "lives")
	boot, instance := g.bootID(), instanceUID(t, ns, "lives")

	g.tell("reboot")
	g.expect(`drydock guest ready`)

	g = login(t, ns, "lives")
	if g.bootID() == boot {
		t.Error("the guest did not boot again")
	}
	if instanceUID(t, ns, "lives") != instance {
		t.Error("a reboot from inside made another VMI; it should be the guest's own affair")
	}
}

// The guest must shut down by itself.
func stopsWithGrace(t *testing.T, ns string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))
	if err := cluster.client.Patch(t.Context(), &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lives"}}, patch); err != nil {
		t.Fatalf("changing the run strategy: %v", err)
	}
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusRunning)
	g := login(t, ns, "lives")

	if out := do(t, ns, "stop", "lives"); !strings.Contains(out, "VM lives was scheduled to stop") {
		t.Errorf("virtctl stop printed %q", out)
	}
	g.expect(`guest: powering off`)
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusStopped)
	awaitGone(t, objectFor(ns, "lives"))

	if out := do(t, ns, "start", "lives"); !strings.Contains(out, "VM lives was scheduled to start") {
		t.Errorf("virtctl start printed %q", out)
	}
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusRunning)
}

// stopsByForce stops a guest that ignores the power button, long before its grace period is over.
func stopsByForce(t *testing.T, ns string) {
	t.Helper()
	g := login(t, ns, "lives")
	g.run("killall -STOP acpid || killall -9 acpid")

	begin := time.Now()
	do(t, ns, "stop", "lives", "--force", "--grace-period=0")
	awaitGone(t, objectFor(ns, "lives"))
	t.Logf("the guest was ended by force in %v", time.Since(begin).Round(time.Millisecond))
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusStopped)
}

// The guest's clock of running time must stand still.
func pauses(t *testing.T, ns string) {
	t.Helper()
	g := login(t, ns, "lives")

	asked, before := time.Now(), g.uptime()
	do(t, ns, "pause", "vm", "lives")
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusPaused)
	paused := time.Now()
	<-time.After(6 * time.Second) // the test measures the pause itself
	stood := time.Since(paused)
	do(t, ns, "unpause", "vm", "lives")
	awaitPrintable(t, ns, "lives", v1.VirtualMachineStatusRunning)
	after := g.uptime()

	// The guest ran for the whole time less the pause; the two readings take a moment.
	if ran, most := after-before, time.Since(asked)-stood+time.Second; ran > most {
		t.Errorf("the guest ran for %v while it can have run for %v at most: it was paused for %v", ran, most, stood)
	}
}

// rebootsFromOutside reboots the guest, once by asking it and once by a reset.
func rebootsFromOutside(t *testing.T, ns string) {
	t.Helper()
	g := login(t, ns, "lives")
	for _, verb := range []string{"soft-reboot", "reset"} {
		before := g.bootID()
		do(t, ns, verb, "lives")
		g.expect(`drydock guest ready`)
		g = login(t, ns, "lives")
		if g.bootID() == before {
			t.Errorf("virtctl %s did not boot the guest again", verb)
		}
	}
}

// The VMI must fail with the reason, and RerunOnFailure start it again.
func panics(t *testing.T, ns string) {
	t.Helper()
	instance := instanceUID(t, ns, "lives")
	login(t, ns, "lives").tell("panic")
	awaitNextInstance(t, ns, "lives", instance)
	eventually(t, "an event that names the panic", hasEvent(ns, "lives", "panic"))
}
