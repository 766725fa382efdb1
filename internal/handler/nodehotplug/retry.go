package nodehotplug

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

const (
	firstDelay = 50 * time.Millisecond
	// LongestDelay bounds the delay before a failed action is repeated.
	LongestDelay = 30 * time.Second
	// reportAfter is the number of failures before the status shows them.
	reportAfter = 4
	// firstAsk is the time until the guest is asked again. A Linux guest answers within a second; the hardware's protocol
	// gives it five.
	firstAsk   = 6 * time.Second
	longestAsk = time.Minute
)

type attempts struct {
	action Action
	err    error
	count  int
	retry  time.Time
}

func (t attempts) failed(err error, now time.Time) attempts {
	t.err = err
	t.count++
	t.retry = now.Add(backoff.Delay(firstDelay, LongestDelay, t.count))
	return t
}

// Attempts are by volume. A change returns a new value.
type Attempts map[string]attempts

// For returns the attempts for new decisions. Another action starts at zero.
func (a Attempts) For(decisions []Decision) Attempts {
	next := Attempts{}
	for i := range decisions {
		d := &decisions[i]
		if next[d.Volume] = a[d.Volume]; a[d.Volume].action != d.Action {
			next[d.Volume] = attempts{action: d.Action}
		}
	}
	return next
}

// Record returns the attempts after an action on a volume.
func (a Attempts) Record(volume string, action Action, err error, now time.Time) Attempts {
	t := a[volume]
	if t.action != action {
		t = attempts{action: action}
	}
	switch {
	case err != nil:
		t = t.failed(err, now)
	case action == Ask || action == Clear:
		// The action may have had no effect.
		t.err = nil
		t.count++
		t.retry = now.Add(backoff.Delay(firstAsk, longestAsk, t.count))
	default:
		return a
	}
	next := maps.Clone(a)
	if next == nil {
		next = Attempts{}
	}
	next[volume] = t
	return next
}

// Wait returns the delay until an action is due.
func (a Attempts) Wait(d *Decision, now time.Time) time.Duration {
	return max(0, a[d.Volume].retry.Sub(now))
}

// Schedule reports whether an action is due now; after is the delay until the next one, or 0.
func (a Attempts) Schedule(decisions []Decision, opening map[string]bool, now time.Time) (due bool, after time.Duration) {
	for i := range decisions {
		d := &decisions[i]
		if d.Action == Rest || opening[d.Volume] {
			continue
		}
		if left := a.Wait(d, now); left > 0 {
			after = backoff.Sooner(after, left)
		} else {
			due = true
		}
	}
	return due, after
}

// Fact is the new status of a volume.
type Fact struct {
	// Phase is empty if the status stays.
	Phase           v1.VolumePhase
	Reason, Message string
	PodName         string
	PodUID          types.UID
	Size            int64 // in the guest, in bytes; 0 for none
}

// Facts returns the status of each volume. refused has the devices that the guest does not release.
func Facts(vmi *v1.VirtualMachineInstance, decisions []Decision, tried Attempts, disks map[string]diskhotplug.Disk, refused map[string]bool) map[string]Fact {
	facts := map[string]Fact{}
	for i := range decisions {
		d := &decisions[i]
		f := Fact{Phase: d.Phase, Reason: d.Reason, Message: d.Message, PodName: d.PodName, PodUID: d.PodUID, Size: disks[d.Volume].Size}
		f.addFailure(tried[d.Volume], entryOf(vmi, d.Volume))
		if d.Action == Ask && d.Phase == v1.HotplugVolumeDetaching && refused[machine.DiskID(d.Volume)] {
			f.Reason, f.Message = ReasonRefused, "the guest has refused to release the disk; it is asked again"
		}
		facts[d.Volume] = f
	}
	return facts
}

func (f *Fact) addFailure(t attempts, e entry) {
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
