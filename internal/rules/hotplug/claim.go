package hotplug

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Reasons of a Pending volume.
const (
	ReasonClaimMissing    = "FailedPvcNotFound"
	ReasonClaimNotReady   = "PVCNotReady"
	ReasonClaimElsewhere  = "PVCOnAnotherNode"
	ReasonFirstConsumer   = "WaitForFirstConsumer"
	ReasonDataNotReady    = "DataVolumeNotReady"
	ReasonDataFailed      = "DataVolumeError"
	progressNotAvailable  = "N/A"
	messageFirstConsumer  = "PVC %s waits for its first consumer, which its attachment pod will be"
	messageClaimElsewhere = "PVC %s can't be used on node %s, where the VM runs: its volume %s is bound to other nodes"
)

// ClaimFacts has the objects of a volume's claim.
type ClaimFacts struct {
	Volume
	// DataVolumeNamed means that the spec names a DataVolume, not the claim.
	DataVolumeNamed bool
	Claim           *corev1.PersistentVolumeClaim
	DataVolume      *cdiv1.DataVolume
	Class           *storagev1.StorageClass
	PV              *corev1.PersistentVolume
	Node            *corev1.Node
}

// WantedOf decides whether the volume can be attached.
func WantedOf(f ClaimFacts) Wanted {
	w := Wanted{Volume: f.Volume}
	w.Alone = f.Claim != nil && slices.Contains(f.Claim.Spec.AccessModes, corev1.ReadWriteOncePod)
	if f.unfilled() {
		f.judgeFilling(&w)
		return w
	}
	f.judgeClaim(&w)
	return w
}

// Filled reports whether the claim exists and is filled.
func (f *ClaimFacts) Filled() bool { return f.Claim != nil && !f.unfilled() }

func (f *ClaimFacts) unfilled() bool {
	if f.Claim == nil {
		return f.DataVolumeNamed && (f.DataVolume == nil || f.DataVolume.Status.Phase != cdiv1.Succeeded)
	}
	return datavolume.Unfilled(f.Claim, f.DataVolume) != ""
}

func (w *Wanted) waits(reason, format string, args ...any) {
	w.Reason, w.Message = reason, fmt.Sprintf(format, args...)
}

func (f *ClaimFacts) judgeFilling(w *Wanted) {
	switch dv := f.DataVolume; {
	case datavolume.AwaitsUpload(f.Claim):
		// An attachment pod only binds an unfilled claim.
		if pending := f.Claim.Status.Phase == corev1.ClaimPending; pending {
			w.Attach, w.Alone, w.Empty = true, true, true
		}
		w.waits(ReasonDataNotReady, "%s", datavolume.Unfilled(f.Claim, nil))
	case dv == nil:
		w.waits(ReasonClaimMissing, "DataVolume %s does not exist, waiting for it to appear", f.Volume.Claim)
	case dv.Status.Phase == cdiv1.Failed:
		w.waits(ReasonDataFailed, "DataVolume %s has failed%s", dv.Name, datavolume.FailureDetail(dv))
	case f.Claim != nil && f.Claim.Status.Phase != corev1.ClaimBound &&
		(dv.Status.Phase == cdiv1.WaitForFirstConsumer || dv.Status.Phase == cdiv1.PendingPopulation):
		w.Attach, w.Alone, w.Empty = true, true, true
		w.waits(ReasonFirstConsumer, messageFirstConsumer, f.Volume.Claim)
	default:
		phase, progress := string(dv.Status.Phase), ""
		if phase == "" {
			phase = string(cdiv1.Pending)
		}
		if p := string(dv.Status.Progress); p != "" && p != progressNotAvailable {
			progress = " (" + p + ")"
		}
		w.waits(ReasonDataNotReady, "DataVolume %s is not filled yet: %s%s", dv.Name, phase, progress)
	}
}

func (f *ClaimFacts) judgeClaim(w *Wanted) {
	name := f.Volume.Claim
	switch c := f.Claim; {
	case c == nil:
		w.waits(ReasonClaimMissing, "PVC %s does not exist, waiting for it to appear", name)
	case c.DeletionTimestamp != nil:
		w.waits(ReasonClaimNotReady, "PVC %s is being deleted", name)
	case c.Status.Phase == corev1.ClaimBound && !f.reachable():
		w.waits(ReasonClaimElsewhere, messageClaimElsewhere, name, f.Node.Name, f.PV.Name)
	case c.Status.Phase == corev1.ClaimBound:
		w.Attach = true
	case c.Status.Phase == corev1.ClaimLost:
		w.waits(ReasonClaimNotReady, "PVC %s has lost its volume", name)
	case f.Class != nil && f.Class.VolumeBindingMode != nil && *f.Class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer:
		w.Attach, w.Alone = true, true
		w.waits(ReasonFirstConsumer, messageFirstConsumer, name)
	default:
		w.waits(ReasonClaimNotReady, "PVC %s is in phase Pending", name)
	}
}

// reachable reports whether the node matches the PV's node affinity, as far as both are known.
func (f *ClaimFacts) reachable() bool {
	if f.PV == nil || f.Node == nil || f.PV.Spec.NodeAffinity == nil || f.PV.Spec.NodeAffinity.Required == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(f.PV.Spec.NodeAffinity.Required)
	return err != nil || selector.Match(f.Node)
}
