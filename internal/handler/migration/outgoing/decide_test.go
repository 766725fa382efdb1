package outgoing

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const ours types.UID = "4d5e"

// connected returns a migration whose target does not answer.
func connected(t *testing.T, now func() time.Time) (*Migration, *migration.Source) {
	t.Helper()
	source, err := migration.NewSource(t.Context(), migration.Env{
		Node: &migration.Node{}, Go: func(func()) {}, Wake: func() {}, Now: now,
	}, migration.ID{Migration: ours}, "node2", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return &Migration{current: current{of: ours, source: source}}, source
}

// starting returns the facts before memory is sent.
func starting() Facts {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: ours, SourceNode: "node1", TargetNode: "node2", TargetNodeAddress: "127.0.0.1:1", StartTimestamp: &metav1.Time{},
	}
	vmi.Status.ActivePods = map[types.UID]string{"1": "node1", "2": "node2"}
	return Facts{
		Home: true, DisksFixed: true,
		Observed: vmihandler.Observed{VMI: vmi, Attached: true, Link: vmihandler.LinkUp, RunState: runstate.Running},
	}
}

func sending() Facts {
	f := starting()
	f.Guest.Migration.Begun, f.Guest.Migration.Status = ours, migrationstatus.Active
	return f
}

func plugged(volumes ...string) nodehotplug.Plugs {
	var p nodehotplug.Plugs
	for _, volume := range volumes {
		p.Disks = append(p.Disks, nodehotplug.PluggedDisk{Volume: volume, Place: machine.Slot{Bus: v1.DiskBusSCSI}})
	}
	return p
}

func onWire(volumes ...string) []migrationwire.Disk {
	disks := []migrationwire.Disk{}
	for _, volume := range volumes {
		disks = append(disks, migrationwire.Disk{Volume: volume, Bus: string(v1.DiskBusSCSI)})
	}
	return disks
}

// Each round before memory is sent has one of these as its facts. The target is told in Tell, and not before.
func TestTheTargetIsToldWhatWasDecided(t *testing.T) {
	disks := func(p nodehotplug.Plugs) func(*Facts) { return func(f *Facts) { f.Plugs = p } }
	for name, c := range map[string]struct {
		rounds []func(*Facts)
		want   migration.Told
		step   switchover.SourceAction
	}{
		"its disks": {
			[]func(*Facts){disks(plugged("data"))},
			migration.Told{DisksSent: true, Disks: onWire("data")}, switchover.SourceWait,
		},
		"that it has no disks": {
			[]func(*Facts){disks(plugged())},
			migration.Told{DisksSent: true, Disks: onWire()}, switchover.SourceWait,
		},
		"the same disks once more": {
			[]func(*Facts){disks(plugged("data")), disks(plugged("data"))},
			migration.Told{DisksSent: true, Disks: onWire("data")}, switchover.SourceWait,
		},
		"nothing about disks that are being plugged": {
			[]func(*Facts){func(f *Facts) { f.Plugs, f.DisksFixed = plugged("data"), false }},
			migration.Told{}, switchover.SourceWait,
		},
		"nothing while a concern is at work": {
			[]func(*Facts){func(f *Facts) { f.Plugs, f.Concerns.Unsettled = plugged("data"), true }},
			migration.Told{}, switchover.SourceWait,
		},
		"fewer disks than before": {
			[]func(*Facts){disks(plugged("data", "logs")), disks(plugged("data"))},
			migration.Told{DisksSent: true, Disks: onWire("data", "logs"), Refused: "the guest has released a disk while its migration was prepared"},
			switchover.RecordFailed,
		},
		"a refusal counts although its reason has gone": {
			[]func(*Facts){func(f *Facts) { f.Concerns.Refusal, f.Concerns.Unsettled = "the guest has too many CPUs", true }, disks(plugged())},
			migration.Told{DisksSent: true, Disks: onWire(), Refused: "the guest has too many CPUs"},
			switchover.RecordFailed,
		},
	} {
		m, source := connected(t, time.Now)
		var decided Decision
		for _, edit := range c.rounds {
			facts, before := starting(), source.Told()
			edit(&facts)
			decided = m.Decide(m.Observe(facts))
			if diff := cmp.Diff(before, source.Told()); diff != "" {
				t.Errorf("%s: Observe or Decide has told:\n%s", name, diff)
			}
			m.Tell(&decided)
		}
		if diff := cmp.Diff(c.want, source.Told()); diff != "" || decided.step.Action != c.step {
			t.Errorf("%s: the step is %q, want %q; told (-want +got):\n%s", name, decided.step.Action, c.step, diff)
		}
	}
}

func TestDisksTakenByForceKeepTheGuest(t *testing.T) {
	m, _ := connected(t, time.Now)
	facts := starting()
	facts.Plugs = plugged("data")
	facts.Plugs.Detached = []string{"logs"}
	d := m.Decide(m.Observe(facts))
	if d.step.Action != switchover.RecordFailed || d.sendsDisks || !strings.Contains(d.Report.Failure, "taken from it by force (logs)") {
		t.Errorf("decided is %+v", d)
	}
}

// QEMU may be told another limit in each round through the guest's memory.
func TestTheDowntimeIsSetOnce(t *testing.T) {
	m, source := connected(t, time.Now)
	facts := sending()
	d := m.Decide(m.Observe(facts))
	if !d.setsDowntime || d.downtime <= 0 {
		t.Fatalf("no downtime is set: %v", d.downtime)
	}
	source.RecordDowntimeLimit(d.downtime)
	if d := m.Decide(m.Observe(facts)); d.setsDowntime {
		t.Error("the downtime is set once more")
	}
	facts.Guest.Migration.Progress.Rounds = 100
	if d := m.Decide(m.Observe(facts)); !d.setsDowntime {
		t.Error("many rounds later, QEMU still has the first downtime")
	}
	if d := m.Decide(m.Observe(starting())); d.setsDowntime {
		t.Error("a QEMU that sends nothing gets a downtime")
	}
}

// QEMU may be waiting for the target to write to a disk.
func TestASilentQEMULosesItsDiskConnections(t *testing.T) {
	m, _ := connected(t, time.Now)
	facts := sending()
	for _, silent := range []bool{false, true} {
		facts.Guest.Silent = silent
		if d := m.Decide(m.Observe(facts)); d.endsDisks != silent {
			t.Errorf("silent %v: the disk connections end: %v", silent, d.endsDisks)
		}
	}
}

// Nothing shows then that the migration has not begun: QEMU may have sent the guest after all.
func TestARefusalIsAboutAQEMUThatRuns(t *testing.T) {
	m, source := connected(t, time.Now)
	source.RecordRefusal("virt-handler at the source could not have QEMU hand the guest over")
	unknown := starting()
	unknown.Observed.Attached, unknown.Observed.Link = false, vmihandler.LinkNone
	sent := unknown
	sent.Exit = &launch.Exit{Reason: launch.ReasonMigrated}
	sent.Observed.Launcher.Phase = launch.PhaseExited
	for name, c := range map[string]struct {
		facts Facts
		want  switchover.SourceStep
	}{
		"QEMU can't be asked":           {unknown, switchover.SourceStep{Action: switchover.SourceWait}},
		"QEMU has sent it and is ended": {sent, switchover.SourceStep{Action: switchover.SourceWait, Tell: switchover.Released}},
	} {
		if d := m.Decide(m.Observe(c.facts)); d.step != c.want {
			t.Errorf("%s: the step is %+v, want %+v", name, d.step, c.want)
		}
	}
}

// virtiofsd can't wait for memory.
func TestAGuestWithSharedFoldersDoesNotGoByPostCopy(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{VMIMConfigurationOptions: &v1.VMIMConfigurationOptions{AllowPostCopy: new(true)}}
	if limits := limitsOf(vmi, nil, true); !limits.PostCopy {
		t.Errorf("a guest without folders has the limits %+v", limits)
	}
	vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "data"}}
	if limits := limitsOf(vmi, nil, true); limits.PostCopy || !limits.Pause {
		t.Errorf("a guest with folders has the limits %+v", limits)
	}
}
