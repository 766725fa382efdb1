package vmcontroller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// The delay before the n-th start after consecutive failures is n² times backOffStep, at most backOffLimit.
// A cause that takes a minute to mend (an image pull, a node's return) costs two or three starts.
const (
	backOffStep  = 10 * time.Second
	backOffLimit = 5 * time.Minute
)

// dropCompletedRequests removes completed requests and reports whether the next one stops the VMI.
func (d *decision) dropCompletedRequests() (stop bool) {
	requests := d.VM.Status.StateChangeRequests
	for len(requests) > 0 && d.done(&requests[0]) {
		requests = requests[1:]
	}
	if len(requests) == 0 {
		requests = nil
	}
	d.VM.Status.StateChangeRequests = requests
	return requests != nil && requests[0].Action == v1.StopRequest
}

func (d *decision) done(r *v1.VirtualMachineStateChangeRequest) bool {
	switch r.Action {
	case v1.StopRequest:
		return d.vmi == nil || r.UID != nil && *r.UID != d.vmi.UID
	case v1.StartRequest:
		if d.strategy == v1.RunStrategyHalted {
			// A paused start comes with the change of the run strategy and may be seen before it.
			return r.Data[v1.StartRequestDataPausedKey] != v1.StartRequestDataPausedTrue
		}
		return d.vmi != nil && !d.vmi.IsFinal() && d.vmi.DeletionTimestamp == nil
	}
	return true
}

func (d *decision) startRequest() *v1.VirtualMachineStateChangeRequest {
	requests := d.VM.Status.StateChangeRequests
	for i := range requests {
		if requests[i].Action == v1.StartRequest {
			return &requests[i]
		}
	}
	return nil
}

// startRequested reports whether a start is requested and the run strategy permits it.
func (d *decision) startRequested() bool {
	return d.strategy != v1.RunStrategyHalted && d.startRequest() != nil
}

// restarts reports whether the run strategy restarts a failed VM.
func (d *decision) restarts() bool {
	return d.strategy == v1.RunStrategyAlways || d.strategy == v1.RunStrategyRerunOnFailure
}

// trackFailures counts consecutive VMIs that failed before their guest ran. A running guest resets
// the count, as does a run strategy that does not restart.
func (d *decision) trackFailures() {
	failure := d.VM.Status.StartFailure
	switch {
	case !d.restarts():
		d.VM.Status.StartFailure = nil
	case d.vmi == nil || d.vmi.DeletionTimestamp != nil:
	case ran(d.vmi):
		d.VM.Status.StartFailure = nil
	case d.vmi.Status.Phase == v1.Failed && (failure == nil || failure.LastFailedVMIUID != d.vmi.UID):
		count := 1
		if failure != nil {
			count += failure.ConsecutiveFailCount
		}
		retry := metav1.NewTime(d.o.Now.Add(backOffAfter(count)).Truncate(time.Second))
		d.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{
			ConsecutiveFailCount: count, LastFailedVMIUID: d.vmi.UID, RetryAfterTimestamp: &retry,
		}
	}
}

func ran(vmi *v1.VirtualMachineInstance) bool {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == v1.Running {
			return true
		}
	}
	return vmi.Status.Phase == v1.Running
}

func backOffAfter(count int) time.Duration {
	// More would exceed the limit anyway.
	count = min(count, 10)
	return min(time.Duration(count*count)*backOffStep, backOffLimit)
}

func (d *decision) backOff() time.Duration {
	f := d.VM.Status.StartFailure
	if f == nil || f.RetryAfterTimestamp == nil || d.o.Now.After(f.RetryAfterTimestamp.Time) {
		return 0
	}
	// The delay may end at this very second.
	return max(0, f.RetryAfterTimestamp.Sub(d.o.Now))
}
