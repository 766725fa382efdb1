package vmcontroller

import (
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// The delay before the n-th start after consecutive failures is n² times backOffStep, at most backOffLimit. A cause that
// lasts a minute (an image pull, a node's return) costs two or three starts.
const (
	backOffStep  = 10 * time.Second
	backOffLimit = 5 * time.Minute
)

// dropCompletedRequests reports whether the next one stops the VMI.
func (d *decision) dropCompletedRequests() (stop bool) {
	requests := d.VM.Status.StateChangeRequests
	for len(requests) > 0 && d.isDone(&requests[0]) {
		requests = requests[1:]
	}
	if len(requests) == 0 {
		requests = nil
	}
	d.VM.Status.StateChangeRequests = requests
	return requests != nil && requests[0].Action == v1.StopRequest
}

func (d *decision) isDone(r *v1.VirtualMachineStateChangeRequest) bool {
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

func (d *decision) startRequested() bool {
	return d.strategy != v1.RunStrategyHalted && d.startRequest() != nil
}
