package datavolume

import (
	"slices"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

type method string

const (
	methodImport  method = "import"
	methodUpload  method = "upload"
	methodCopy    method = "copy"
	methodClone   method = "clone"
	methodRestore method = "restore"
	methodAdopt   method = "adopt"
)

func (m method) byWorker() bool {
	return m == methodImport || m == methodUpload || m == methodCopy
}

// The method never changes once there is a claim.
func methodOf(o Observed) method {
	source := o.DataVolume.Spec.Source
	switch {
	case isFilled(o.DataVolume, o.Claim):
		return methodAdopt
	case source.Upload != nil:
		return methodUpload
	case source.Snapshot != nil:
		restored := o.Claim != nil && o.Claim.Spec.DataSource != nil
		if restored || o.Claim == nil && restorable(o) {
			return methodRestore
		}
		return methodCopy
	case source.PVC == nil:
		return methodImport
	case o.Claim != nil && (o.Claim.Spec.DataSource != nil || o.Claim.Spec.DataSourceRef != nil):
		return methodClone
	case o.Claim == nil && driverClones(o):
		return methodClone
	}
	return methodCopy
}

// stage orders the phases of all methods.
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

// next returns the next phase whose stage is reached, and whether the one after it is, too.
func next(path []cdiv1.DataVolumePhase, current cdiv1.DataVolumePhase, reached stage) (phase cdiv1.DataVolumePhase, more bool) {
	ahead := func(p cdiv1.DataVolumePhase) bool { return stages[p] > stages[current] && stages[p] <= reached }
	i := slices.IndexFunc(path, ahead)
	if i < 0 {
		return current, false
	}
	return path[i], i+1 < len(path) && stages[path[i+1]] <= reached
}
