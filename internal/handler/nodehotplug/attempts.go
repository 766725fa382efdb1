package nodehotplug

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

const (
	firstDelay   = 50 * time.Millisecond
	longestDelay = 30 * time.Second
	// reportAfter is the number of failures before the status shows them: a failure that the next attempt fixes is
	// not worth a write.
	reportAfter = 4
	// firstAsk is how long a guest has before it is asked again to release a disk. A Linux guest answers within a
	// second; the hardware's own protocol gives it five.
	firstAsk   = 6 * time.Second
	longestAsk = time.Minute
)

type attempts struct {
	action Action
	err    error
	count  int
	retry  time.Time
}

func (t *attempts) recordFailure(err error, now time.Time) {
	t.err = err
	t.count++
	t.retry = now.Add(backoff.Delay(firstDelay, longestDelay, t.count))
}

// recordSuccess records an action that succeeded and takes effect later.
func (t *attempts) recordSuccess(now time.Time) {
	t.err = nil
	t.count++
	t.retry = now.Add(backoff.Delay(firstAsk, longestAsk, t.count))
}

// Fact is the new status of a volume.
type Fact struct {
	// Phase is empty if the status should stay as it is.
	Phase           v1.VolumePhase
	Reason, Message string
	PodName         string
	PodUID          types.UID
	// Size is the disk's size in the guest in bytes, 0 if the guest has no disk.
	Size int64
}

// Facts returns the results of the last Look by volume, for the status of the VMI that Look was called with. For
// another version of the VMI it returns none before the next Look: a pod that one version's record names may be
// deleted in the next, so a decision must only be written on top of its own version.
func (w *Worker) Facts(instance *v1.VirtualMachineInstance) map[string]Fact {
	facts := map[string]Fact{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if instance.ResourceVersion != w.version {
		return facts
	}
	for _, d := range w.decisions {
		f := Fact{Phase: d.Phase, Reason: d.Reason, Message: d.Message, PodName: d.PodName, PodUID: d.PodUID, Size: w.disks[d.Volume].Size}
		if t := w.tried[d.Volume]; t != nil {
			f.addFailure(t, entryOf(instance, d.Volume))
		}
		if d.Action == Ask && d.Phase == v1.HotplugVolumeDetaching && w.refused[machine.DiskID(d.Volume)] {
			f.Reason, f.Message = ReasonRefused, "the guest has refused to release the disk; it is asked again"
		}
		facts[d.Volume] = f
	}
	return facts
}

func (f *Fact) addFailure(t *attempts, e entry) {
	if t.err == nil || t.count < reportAfter || !e.attached() {
		return
	}
	if f.Phase == "" {
		f.Phase, f.PodName, f.PodUID = e.phase, e.name, e.pod
		if t.action == Plug {
			f.Phase = v1.HotplugVolumeMounted
		}
	}
	f.Reason, f.Message = ReasonFailed, t.err.Error()
}
