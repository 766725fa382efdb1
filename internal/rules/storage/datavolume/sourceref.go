package datavolume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// A sourceRef is resolved when the DataVolume's claim is created. The claim keeps the result in AnnSource, so that a new
// golden image does not change a clone's source halfway. The permission to clone is checked in the DataSource's
// namespace, where the source must be, too: a user who may change a DataSource could otherwise grant access to other
// namespaces (decision 166).

// AnnSource on a claim is its resolved source, "<kind>/<namespace>/<name>".
const AnnSource = "drydock.dev/source"

const kindSnapshot = "snapshot"

// kindSourceRef is SourceOf's kind of an unresolved sourceRef.
const kindSourceRef = "sourceRef"

const kindDataSource = "DataSource"

func refNamespace(ref *cdiv1.DataVolumeSourceRef, own string) string {
	if ref.Namespace != nil && *ref.Namespace != "" {
		return *ref.Namespace
	}
	return own
}

// Refers returns the DataSource of an unresolved sourceRef.
func Refers(dv *cdiv1.DataVolume) (namespace, name string, refers bool) {
	ref := dv.Spec.SourceRef
	if ref == nil || dv.Spec.Source != nil || ref.Kind != kindDataSource {
		return "", "", false
	}
	return refNamespace(ref, dv.Namespace), ref.Name, true
}

// Chosen returns the claim's recorded source, nil for none in the DataSource's namespace.
func Chosen(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) *cdiv1.DataVolumeSource {
	if claim == nil || !metav1.IsControlledBy(claim, dv) {
		return nil
	}
	wanted, _, _ := Refers(dv)
	kind, rest, _ := strings.Cut(claim.Annotations[AnnSource], "/")
	namespace, name, _ := strings.Cut(rest, "/")
	switch {
	case namespace != wanted || name == "":
		return nil
	case kind == "pvc":
		return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
	case kind == kindSnapshot:
		return &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: name}}
	}
	return nil
}

func chosen(dv *cdiv1.DataVolume) string {
	namespace, kind, name := SourceOf(&dv.Spec, dv.Namespace)
	return kind + "/" + namespace + "/" + name
}

// ResolvedReference is a DataSource's source, or the reason and message why there is none.
type ResolvedReference struct {
	Source          *cdiv1.DataVolumeSource
	Reason, Message string
}

// ResolveReference resolves a DataSource, nil for none.
func ResolveReference(source *cdiv1.DataSource, namespace, name string) ResolvedReference {
	nowhere := func(reason, format string, args ...any) ResolvedReference {
		return ResolvedReference{Reason: reason, Message: fmt.Sprintf("the DataSource %s/%s ", namespace, name) + fmt.Sprintf(format, args...)}
	}
	if source == nil {
		return nowhere(ReasonSourceNotFound, "does not exist")
	}
	to := source.Spec.Source.DeepCopy()
	own := func(at *string) bool {
		if *at == "" {
			*at = namespace
		}
		return *at == namespace
	}
	const elsewhere = "leads to namespace %s: a DataSource may lead to what is in its own namespace only"
	switch {
	case to.PVC != nil && !own(&to.PVC.Namespace):
		return nowhere(ReasonNotAllowed, elsewhere, to.PVC.Namespace)
	case to.PVC != nil:
		return ResolvedReference{Source: &cdiv1.DataVolumeSource{PVC: to.PVC}}
	case to.Snapshot != nil && !own(&to.Snapshot.Namespace):
		return nowhere(ReasonNotAllowed, elsewhere, to.Snapshot.Namespace)
	case to.Snapshot != nil:
		return ResolvedReference{Source: &cdiv1.DataVolumeSource{Snapshot: to.Snapshot}}
	case to.DataSource != nil:
		return nowhere(ReasonSourceNotReady, "leads to another DataSource, which Drydock does not follow: name the claim or snapshot")
	}
	return nowhere(ReasonSourceNotReady, "names neither a claim nor a snapshot yet")
}

func (d *decision) awaitReference() {
	dv := d.DataVolume
	switch {
	case d.stage() == stageNone:
		d.step(stagePending)
		d.conditions()
	case d.Claim == nil && d.stage() >= stageBound:
		d.fail(ReasonClaimLost, claimDeleted(dv))
	default:
		d.conditions()
		d.stopAt(&obstacle{reason: d.Reference.Reason, message: d.Reference.Message})
	}
}
