package nodehotplug

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// firstDelay and longestDelay bound the back-off of an action that fails.
	firstDelay   = 50 * time.Millisecond
	longestDelay = 30 * time.Second
	// reportAfter is how often an action must fail before the status says so: what
	// the next attempt mends is not worth a write.
	reportAfter = 4
	// firstAsk is how long a guest has before it is asked again to let go of a
	// disk. A Linux guest answers within a second; the hardware's own protocol
	// gives it five.
	firstAsk   = 6 * time.Second
	longestAsk = time.Minute
)

// attempts is the memory of one volume's action that fails, or has to be
// repeated.
type attempts struct {
	action Action
	err    error
	count  int
	retry  time.Time
}

func (t *attempts) note(err error, now time.Time) {
	t.err = err
	t.count++
	t.retry = now.Add(backoff.Delay(firstDelay, longestDelay, t.count))
}

// asked is for an action that has been done and shows its effect later.
func (t *attempts) asked(now time.Time) {
	t.err = nil
	t.count++
	t.retry = now.Add(backoff.Delay(firstAsk, longestAsk, t.count))
}

// Fact is what is known of a volume for the VMI's status.
type Fact struct {
	// Phase is empty when the status is to stay as it is.
	Phase           v1.VolumePhase
	Reason, Message string
	// PodName and PodUID are the attachment pod to be named with the phase.
	PodName string
	PodUID  types.UID
	// Size is what the guest sees in bytes, 0 when it sees nothing.
	Size int64
}

// Facts gives what the last Look has found, by volume, for the status of the VMI that it
// was found for. Of another version of the VMI there are none before the next Look: what
// was decided on one is not to be written on condition of another, for a pod that a
// record names in one version may be deleted in the next.
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

// addFailure adds what prevents progress.
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
