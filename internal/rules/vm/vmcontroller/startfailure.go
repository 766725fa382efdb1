package vmcontroller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// trackFailures counts consecutive VMIs that failed before their guest ran.
func (d *decision) trackFailures() {
	failure := d.VM.Status.StartFailure
	switch {
	case d.strategy != v1.RunStrategyAlways && d.strategy != v1.RunStrategyRerunOnFailure:
		d.VM.Status.StartFailure = nil
	case d.vmi == nil || d.vmi.DeletionTimestamp != nil:
	case hasRun(d.vmi):
		d.VM.Status.StartFailure = nil
	case d.vmi.Status.Phase == v1.Failed && (failure == nil || failure.LastFailedVMIUID != d.vmi.UID):
		count := 1
		if failure != nil {
			count += failure.ConsecutiveFailCount
		}
		n := min(count, 10) // more would exceed the limit anyway
		delay := min(time.Duration(n*n)*backOffStep, backOffLimit)
		retry := metav1.NewTime(d.o.Now.Add(delay).Truncate(time.Second))
		d.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{
			ConsecutiveFailCount: count, LastFailedVMIUID: d.vmi.UID, RetryAfterTimestamp: &retry,
		}
	}
}

func hasRun(vmi *v1.VirtualMachineInstance) bool {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == v1.Running {
			return true
		}
	}
	return vmi.Status.Phase == v1.Running
}

func (d *decision) backOff() time.Duration {
	f := d.VM.Status.StartFailure
	if f == nil || f.RetryAfterTimestamp == nil || d.o.Now.After(f.RetryAfterTimestamp.Time) {
		return 0
	}
	// The delay may end at this very second.
	return max(0, f.RetryAfterTimestamp.Sub(d.o.Now))
}
