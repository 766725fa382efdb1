package datavolume

import (
	"slices"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// method is how a claim comes to its content.
type method string

const (
	methodImport  method = "import"
	methodUpload  method = "upload"
	methodCopy    method = "copy"
	methodClone   method = "clone"
	methodRestore method = "restore"
	methodAdopt   method = "adopt"
)

// byWorker reports whether a worker fills the claim, and not the storage driver
// or somebody before.
func (m method) byWorker() bool {
	return m == methodImport || m == methodUpload || m == methodCopy
}

// methodOf is how the DataVolume is filled. Once there is a claim it tells, so
// that a clone that has begun one way does not go on another.
func methodOf(o Observed) method {
	source := o.DataVolume.Spec.Source
	switch {
	case isFilled(o.DataVolume, o.Claim):
		return methodAdopt
	case source.Upload != nil:
		return methodUpload
	case source.Snapshot != nil:
		return methodOfSnapshot(o)
	case source.PVC == nil:
		return methodImport
	case o.Claim != nil && (o.Claim.Spec.DataSource != nil || o.Claim.Spec.DataSourceRef != nil):
		return methodClone
	case o.Claim == nil && driverClones(o):
		return methodClone
	}
	return methodCopy
}

// stage is how far a DataVolume has come, whatever the phase is called.
type stage int

const (
	stageNone stage = iota
	stagePending
	stageWaiting
	stageBound
	stageScheduled
	stageRunning
	stageDone
)

// stages of all phases.
var stages = map[cdiv1.DataVolumePhase]stage{
	cdiv1.PhaseUnset:                        stageNone,
	cdiv1.Pending:                           stagePending,
	cdiv1.WaitForFirstConsumer:              stageWaiting,
	cdiv1.PVCBound:                          stageBound,
	cdiv1.ImportScheduled:                   stageScheduled,
	cdiv1.UploadScheduled:                   stageScheduled,
	cdiv1.CloneScheduled:                    stageScheduled,
	cdiv1.ImportInProgress:                  stageRunning,
	cdiv1.UploadReady:                       stageRunning,
	cdiv1.CloneInProgress:                   stageRunning,
	cdiv1.CSICloneInProgress:                stageRunning,
	cdiv1.CloneFromSnapshotSourceInProgress: stageRunning,
	cdiv1.Succeeded:                         stageDone,
	cdiv1.Failed:                            stageDone,
}

// path are the phases of a method in order.
func (m method) path(waits bool) []cdiv1.DataVolumePhase {
	path := []cdiv1.DataVolumePhase{cdiv1.Pending}
	if waits {
		path = append(path, cdiv1.WaitForFirstConsumer)
	}
	switch m {
	case methodImport:
		path = append(path, cdiv1.PVCBound, cdiv1.ImportScheduled, cdiv1.ImportInProgress)
	case methodUpload:
		path = append(path, cdiv1.PVCBound, cdiv1.UploadScheduled, cdiv1.UploadReady)
	case methodCopy:
		path = append(path, cdiv1.PVCBound, cdiv1.CloneScheduled, cdiv1.CloneInProgress)
	case methodClone:
		path = append(path, cdiv1.CloneScheduled, cdiv1.CSICloneInProgress)
	case methodRestore:
		path = append(path, cdiv1.CloneScheduled, cdiv1.CloneFromSnapshotSourceInProgress)
	case methodAdopt:
	}
	return append(path, cdiv1.Succeeded)
}

// next is the phase after current on the path when the stage has been reached,
// and current when it has not. More reports whether there is another one to go to
// at once.
func next(path []cdiv1.DataVolumePhase, current cdiv1.DataVolumePhase, reached stage) (phase cdiv1.DataVolumePhase, more bool) {
	ahead := func(p cdiv1.DataVolumePhase) bool { return stages[p] > stages[current] && stages[p] <= reached }
	i := slices.IndexFunc(path, ahead)
	if i < 0 {
		return current, false
	}
	return path[i], i+1 < len(path) && stages[path[i+1]] <= reached
}
