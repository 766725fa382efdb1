package outgoing

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Facts are the driver's facts of one round. The VMI has a migration.
type Facts struct {
	Observed vmihandler.Observed
	Home     bool // the guest's home is still this node
	Exit     *launch.Exit
	Guest    guest.Facts
	Images   map[string]launch.PreparedImage // of QEMU's start
	// DisksFixed means that the guest's disks no longer change.
	DisksFixed bool
	Plugs      nodehotplug.Plugs
	Concerns   concern.Decided
	// Ending means that virt-launcher was asked to end QEMU at once, or is gone.
	Ending bool
}

func (f *Facts) state() *v1.VirtualMachineInstanceMigrationState {
	return f.Observed.VMI.Status.MigrationState
}

func (f *Facts) limits() switchover.Limits {
	return limitsOf(f.Observed.VMI, f.Images, f.Observed.Attached)
}

// maxDisk bounds a disk's size in a migration's time limits, in bytes.
const maxDisk = 1 << 50

// limitsOf returns a migration's limits, whether or not the target supports post-copy.
func limitsOf(vmi *v1.VirtualMachineInstance, images map[string]launch.PreparedImage, attached bool) switchover.Limits {
	size := machine.GuestMemory(&vmi.Spec)
	if attached {
		for _, disk := range machine.Mirrors(vmi) {
			size += max(0, min(cmp.Or(images[disk.Volume].VirtualSize, volumemigration.SizeOf(vmi, disk.Volume)), maxDisk))
		}
	}
	limits := switchover.LimitsOf(vmi.Status.MigrationState.VMIMConfigurationOptions, size)
	// The programs of shares can't wait for memory.
	limits.PostCopy = limits.PostCopy && !machine.HasShares(&vmi.Spec)
	return limits
}

// Seen is the result of one Observe.
type Seen struct {
	Facts
	source switchover.SourceFacts
	// connection is nil without a connection, or an attempt at one, to the target's virt-handler.
	connection  *connectionFacts
	recovery    migration.Recovery
	progress    vmistatus.Progress
	progressDue bool // unless another change is written
}

type connectionFacts struct {
	told    migration.Told
	plugged bool // QEMU at the target has the plugged disks
}

// Observe returns the facts for Decide. It records when they were first seen.
func (m *Migration) Observe(in Facts) Seen {
	known, of := &in.Guest.Migration, in.state().MigrationUID
	f := switchover.SourceFacts{
		Record: switchover.RecordOf(in.Observed.VMI, of), Process: vmihandler.ProcessOf(in.Observed),
		Exit:     switchover.ExitOf(in.Exit, false),
		RunState: in.Observed.RunState, Settled: in.DisksFixed,
		Mirrors: mirrorsOf(machine.Mirrors(in.Observed.VMI), in.Guest.Jobs, of),
	}
	if known.Begun == of {
		f.Begun, f.Status, f.Error = true, known.Status, known.Failure
		f.Left, f.PostCopyBytes = known.Left, int64(known.PostCopyBytes)
	}
	seen := Seen{Facts: in, recovery: m.recovery}
	if source := m.source; source != nil {
		recordStage(source, &f, known)
		limits := in.limits()
		limits.PostCopy = limits.PostCopy && source.Transport().PostCopy
		source.AddFacts(&f, limits)
		seen.connection = &connectionFacts{told: source.Told(), plugged: source.Plugged()}
		seen.progress, seen.progressDue = observeProgress(source, &f, &in)
	}
	seen.source = f
	return seen
}

func recordStage(source *migration.Source, f *switchover.SourceFacts, known *guest.Migration) {
	switch {
	case f.Begun:
		source.RecordStopped(f.Status == migrationstatus.PreSwitchover || f.Status == migrationstatus.Device ||
			f.Status.PostCopy() && !f.Left)
		source.RecordCanceling(f.Status == migrationstatus.Canceling)
		source.RecordPaused(f.Status == migrationstatus.Active && f.RunState == runstate.PausedToMigrate)
		if f.Status == migrationstatus.Active {
			p := &known.Progress
			source.RecordMemoryProgress(switchover.Sample{
				Elapsed: p.Elapsed, Transferred: int64(p.Transferred), Remaining: int64(p.Remaining),
				DirtyRate: int64(p.DirtyRate), Throughput: int64(p.Rate),
			})
		}
	case f.Mirrors.Begun:
		source.RecordDiskProgress(&f.Mirrors)
	}
}

func mirrorsOf(disks []machine.Mirror, jobs []guest.Job, of types.UID) switchover.Mirrors {
	list := make([]switchover.Mirror, 0, len(disks))
	for i := range disks {
		mirror := switchover.Mirror{Volume: disks[i].Volume}
		for _, j := range jobs {
			if j.ID == disks[i].Job(of) {
				mirror.Status, mirror.Error, mirror.Done, mirror.Total = j.Status, j.Error, j.Done, j.Total
			}
		}
		list = append(list, mirror)
	}
	mirrors := switchover.MirrorsOf(list)
	mirrors.Left = len(jobs) > 0
	return mirrors
}
