package driver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// scratch is the block node of the disk that is in the guest's pod.
var scratch = machine.NodeName("scratch")

// mirrors waits until the copy of the disk has the given status.
func (v *voyage) mirrors(want string) {
	v.t.Helper()
	awaitTrue(v.t, "a copy that is "+want, func() bool {
		for _, status := range v.from.model.qemu.Jobs() {
			if status == want {
				return true
			}
		}
		return false
	})
}

func TestADiskInThePodMigratesWithItsGuest(t *testing.T) {
	v := newVoyageOf(t, scheduled("web"))
	from := v.from.model.qemu
	from.Write(scratch)
	release := from.HoldMirrors()
	v.begin(nil)
	v.to.start()
	v.api.await(t, "the start", started)
	v.mirrors("running")
	if status := from.MigrationStatus(); status != "" {
		t.Errorf("before the disk is copied, the migration is %s", status)
	}
	from.Write(scratch)
	release()
	v.copies()
	to := v.to.model.qemu
	if here, there := from.Content(scratch), to.Content(scratch); here != 2 || there != 2 {
		t.Errorf("when memory is sent, %d writes are on the source's disk, and %d on the target's", here, there)
	}
	from.Write(scratch)
	v.release()
	v.api.await(t, "the completion", completed)
	<-from.Ended()
	v.alone(v.to, v.from)
	if here, there := from.Content(scratch), to.Content(scratch); here != 3 || there != 3 {
		t.Errorf("%d writes are on the source's disk, and %d on the target's", here, there)
	}
	commands := to.Commands()
	if stop, cont := slices.Index(commands, "nbd-server-stop"), slices.Index(commands, "cont"); stop < 0 || stop > cont || len(to.Exports()) > 0 {
		t.Errorf("the guest runs while others write to its disks: %v; %v", to.Exports(), commands)
	}
}

// TestACopyOfADiskComesToNothing: the guest continues at the source with all its writes, and no remains of the copy are
// left.
func TestACopyOfADiskComesToNothing(t *testing.T) {
	for name, test := range map[string]struct {
		// held means that the failure happens before the disk has been copied completely.
		held   bool
		happen func(*voyage)
		reason string
	}{
		"the target's end of it fails while memory is sent": {false, func(v *voyage) {
			monitor := v.to.model.monitor(v.t)
			if err := monitor.Execute(v.t.Context(), "nbd-server-stop", nil, nil); err != nil {
				v.t.Error(err)
			}
			_ = monitor.Close()
			v.from.model.qemu.Write(scratch)
		}, `the copy of volume scratch to the target has failed: QEMU reports "Input/output error"`},
		"the migration is aborted": {true, func(v *voyage) { v.tell(vmistatus.Migration{Abort: true}, nil) }, "the migration was aborted"},
		"virt-handler at the source is restarted while the disk is copied": {true, func(v *voyage) { v.from.restart() }, "virt-handler at the source was restarted"},
		"virt-handler at the source is restarted while memory is sent":     {false, func(v *voyage) { v.from.restart() }, ""},
		"QEMU at the target ends": {true, func(v *voyage) { v.to.model.qemu.Exit() }, "the target's QEMU has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoyageOf(t, scheduled("web"))
			from := v.from.model.qemu
			if test.held {
				defer from.HoldMirrors()()
			}
			v.begin(nil)
			v.to.start()
			v.api.await(t, "the start", started)
			if test.held {
				v.mirrors("running")
			} else {
				v.copies()
			}
			from.Write(scratch)
			test.happen(v)
			failed := v.api.await(t, "the failure", failedNow)
			if got := failed.Status.MigrationState.FailureReason; test.reason != "" && got != test.reason {
				t.Errorf("it fails with %q", got)
			}
			<-v.to.model.qemu.Ended()
			v.alone(v.from, v.to)
			awaitTrue(t, "the end of the copies", func() bool { return len(from.Jobs()) == 0 && from.NodeSize("m-scratch") == 0 })
			v.api.await(t, "a guest that runs", well)
		})
	}
}

func TestACopyThatQEMURefusesFailsTheMigration(t *testing.T) {
	v := newVoyageOf(t, scheduled("web"))
	v.from.model.qemu.Override("blockdev-mirror", func(json.RawMessage) (any, error) {
		return nil, &qmp.Error{Class: "GenericError", Desc: "Need a \x1broot block node"}
	})
	v.begin(nil)
	v.to.start()
	failed := v.api.await(t, "the failure", failedNow)
	const want = `volume scratch cannot be copied to the target: QEMU reports "Need a \x1broot block node"`
	if got := failed.Status.MigrationState.FailureReason; got != want {
		t.Errorf("it fails with %q", got)
	}
	<-v.to.model.qemu.Ended()
	v.alone(v.from, v.to)
	if size := v.from.model.qemu.NodeSize("m-scratch"); size != 0 {
		t.Error("the way to the target is left")
	}
}

// TestACopyTakesTooLong: the message is the same as for memory.
func TestACopyTakesTooLong(t *testing.T) {
	t.Parallel()
	v := newVoyageOf(t, scheduled("web"))
	defer v.from.model.qemu.HoldMirrors()()
	v.begin(&v1.VMIMConfigurationOptions{ProgressTimeout: new(int64(1))})
	v.to.start()
	// The copy may end before anybody sees it run.
	awaitTrue(t, "a copy", func() bool { return v.from.model.qemu.Executed("blockdev-mirror") > 0 })
	failed := v.api.await(t, "the failure", failedNow)
	if got := failed.Status.MigrationState.FailureReason; !strings.HasPrefix(got, "the migration has been aborted: nothing was transferred for ") {
		t.Errorf("it fails with %q", got)
	}
	v.alone(v.from, v.to)
}
