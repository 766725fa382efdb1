package placement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Claim is a claim of a VMI's volumes, with its DataVolume.
type Claim struct {
	Name  string
	Claim *corev1.PersistentVolumeClaim
	// Source names the DataVolume that fills the claim. DataVolume is nil if that does not exist.
	Source     string
	DataVolume *cdiv1.DataVolume
}

// Source names the DataVolume that fills a claim: its owner, or while there is no claim the one in the VMI's volume. A
// claim without an owner is final: CDI may delete a DataVolume that has succeeded and leave its claim.
func Source(claim *corev1.PersistentVolumeClaim, dataVolumeNamed bool, name string) string {
	if claim == nil {
		if dataVolumeNamed {
			return name
		}
		return ""
	}
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == dataVolumeKind {
		return owner.Name
	}
	return ""
}

const dataVolumeKind = "DataVolume"

// NamesDataVolume reports whether a volume names the DataVolume.
func NamesDataVolume(volumes []v1.Volume, name string) bool {
	for i := range volumes {
		if d := volumes[i].DataVolume; d != nil && d.Name == name {
			return true
		}
	}
	return false
}

// missing reports whether only a user's action can help.
func (c *Claim) missing() bool {
	return c.Claim == nil && c.DataVolume == nil
}

func (c *Claim) bound() bool {
	return c.Claim != nil && c.Claim.Status.Phase == corev1.ClaimBound
}

func (c *Claim) filled() bool {
	if c.Claim == nil || c.awaitsUpload() {
		return false
	}
	return c.Source == "" || c.DataVolume != nil && c.DataVolume.Status.Phase == cdiv1.Succeeded
}

func (c *Claim) awaitsUpload() bool { return c.Source == "" && datavolume.AwaitsUpload(c.Claim) }

// waits reports whether the claim's filling waits for a consumer with a node.
func (c *Claim) waits() bool {
	return c.Claim != nil && !c.bound() && (c.awaitsUpload() || c.DataVolume != nil && waitsForConsumer(c.DataVolume.Status.Phase))
}

// unsettled reports whether it is unknown yet how the claim will be bound.
func (c *Claim) unsettled() bool {
	if c.Claim == nil {
		return true
	}
	if c.Source == "" {
		return false
	}
	if c.DataVolume == nil {
		return true
	}
	switch c.DataVolume.Status.Phase {
	case cdiv1.PhaseUnset, cdiv1.Pending, cdiv1.Unknown:
		return !c.bound()
	case cdiv1.Failed:
		return true
	}
	return false
}

func waitsForConsumer(phase cdiv1.DataVolumePhase) bool {
	return phase == cdiv1.WaitForFirstConsumer || phase == cdiv1.PendingPopulation
}

// Binding reports whether the DataVolume's claim exists and is not bound.
func Binding(dv *cdiv1.DataVolume) bool {
	bound := datavolume.Condition(dv, cdiv1.DataVolumeBound)
	return dv.Status.Phase == cdiv1.Pending && dv.Status.ClaimName != "" && bound != nil && bound.Status == corev1.ConditionFalse
}

// Ready reports whether a VMI may use the DataVolume: it is filled, or waits for the VMI.
func Ready(dv *cdiv1.DataVolume) bool {
	return dv.Status.Phase == cdiv1.Succeeded || waitsForConsumer(dv.Status.Phase)
}

// Trouble returns why a DataVolume is not being filled. It is serious unless it passes by itself, like a source in use.
func Trouble(dv *cdiv1.DataVolume) (sentence string, serious bool) {
	running := datavolume.Condition(dv, cdiv1.DataVolumeRunning)
	said, reason := "", ""
	if running != nil && running.Status != corev1.ConditionTrue {
		said, reason = running.Message, running.Reason
	}
	switch {
	case dv.Status.Phase == cdiv1.Succeeded:
		return "", false
	case dv.Status.Phase == cdiv1.Failed && said == "":
		return fmt.Sprintf("DataVolume %s has failed", dv.Name), true
	case dv.Status.Phase == cdiv1.Failed:
		return fmt.Sprintf("DataVolume %s has failed: %s", dv.Name, said), true
	}
	if bound := datavolume.Condition(dv, cdiv1.DataVolumeBound); bound != nil && bound.Reason == boundQuota {
		return fmt.Sprintf("DataVolume %s gets no claim: %s", dv.Name, bound.Message), true
	}
	if said == "" || normal(reason) {
		return "", false
	}
	passes := reason == datavolume.ReasonClaimInUse || reason == "CloneSourceInUse" || reason == "CloneSourceNotReady" ||
		reason == corev1.PodReasonUnschedulable
	return fmt.Sprintf("DataVolume %s: %s", dv.Name, said), !passes
}

// boundQuota is CDI's reason for a claim that exceeds the namespace's quota.
const boundQuota = "ErrExceededQuota"

// normal reports whether Running may be False for this reason in the normal course.
func normal(reason string) bool {
	switch reason {
	case "", "Pending", "ContainerCreating", "PodInitializing", "TransferRunning", "Completed", "WaitForFirstConsumer":
		return true
	}
	return false
}
