package vmistatus

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// MigrationProgress has the progress of a migration in its message. KubeVirt has no condition for it (decision 321).
const MigrationProgress v1.VirtualMachineInstanceConditionType = layout.MigrationProgress

// ProgressInterval is the minimum time before the progress is written, and between two writes.
const ProgressInterval = 5 * time.Second

// ProgressDue reports whether to write the progress, which was last written or begun at last.
func ProgressDue(last, now time.Time) bool { return now.Sub(last) >= ProgressInterval }

// ProgressStage is the activity of a migration's source, and the reason of MigrationProgress.
type ProgressStage string

// The stages, in order; CopyingDisks only if disks move with the guest. From HandingOver on the guest is stopped; in
// GuestSent the target does not run it yet.
const (
	CopyingDisks  ProgressStage = "CopyingDisks"
	SendingMemory ProgressStage = "SendingMemory"
	HandingOver   ProgressStage = "HandingOver"
	GuestSent     ProgressStage = "GuestSent"
)

// Progress is a migration source's, in bytes and bytes per second. QEMU's figures may have any value.
type Progress struct {
	Stage                  ProgressStage
	Total, Remaining, Sent int64         // Sent may exceed Total
	Rate, DirtyRate        int64         // of the transfer, of the guest's changes
	Downtime               time.Duration // of the guest, if the rest was sent now
	Stopped                time.Time     // of the guest; zero if unknown
}

// docs/migration.md documents these sentences.
func (p Progress) message(target string) string {
	switch p.Stage {
	case CopyingDisks:
		return fmt.Sprintf("%d%% of the disks is there: %d MiB of %d MiB left, %d MiB/s",
			p.share(), mebibytes(p.Remaining), mebibytes(p.Total), mebibytes(p.Rate))
	case SendingMemory:
		return fmt.Sprintf("%d%% of the memory is there: %d MiB of %d MiB left, %d MiB sent, %d MiB/s; the guest changes %d MiB/s and would stand still for %d ms",
			p.share(), mebibytes(p.Remaining), mebibytes(p.Total), mebibytes(p.Sent), mebibytes(p.Rate), mebibytes(p.DirtyRate), max(0, p.Downtime).Milliseconds())
	case HandingOver:
		return fmt.Sprintf("the guest stands still%s while the rest of what it needs is sent to node %s", p.since(), target)
	case GuestSent:
		return fmt.Sprintf("the guest was sent, and stands still%s until virt-handler on node %s runs it", p.since(), target)
	}
	return ""
}

func (p Progress) since() string {
	if p.Stopped.IsZero() {
		return ""
	}
	return " since " + p.Stopped.UTC().Format(time.RFC3339)
}

func (p Progress) share() int {
	if p.Total <= 0 {
		return 0
	}
	left := min(max(0, p.Remaining), p.Total)
	return int(100 * (float64(p.Total-left) / float64(p.Total)))
}

// mebibytes rounds up.
func mebibytes(bytes int64) int64 {
	const mebibyte = 1 << 20
	whole := max(0, bytes) / mebibyte
	if bytes > whole*mebibyte {
		whole++
	}
	return whole
}

// virt-controller removes it in the write that switches the VMI's node.
func (p *projection) migrationProgress() verdict {
	m := p.next.MigrationState
	source, _ := p.Source.Get()
	switch {
	case p.stage != HandedOver:
		return unknown
	case !switchover.InFlight(p.next):
		return absent
	case m.Completed, source.UID != m.MigrationUID, source.Progress.Stage == "":
		return unknown
	}
	told := isTrue(string(source.Progress.Stage), source.Progress.message(m.TargetNode))
	told.want.LastProbeTime = metav1.NewTime(p.Now.Truncate(time.Second))
	return told
}
