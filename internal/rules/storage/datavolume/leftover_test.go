package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestWhatMayBeLeft(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "11111111-2222-3333-4444-555555555555"}}
	worker, claim := map[string]string{v1.AppLabel: WorkerAppLabel}, withOurs(nil)
	target := map[string]string{AnnTarget: "ns/copy"}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	pod := func(m metav1.ObjectMeta) metav1.Object { return &corev1.Pod{ObjectMeta: m} }
	pvc := func(m metav1.ObjectMeta) metav1.Object { return &corev1.PersistentVolumeClaim{ObjectMeta: m} }
	for name, c := range map[string]struct {
		object metav1.Object
		want   bool
	}{
		"a source pod":                  {pod(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: worker, Annotations: target}), true},
		"a restored claim":              {pvc(metav1.ObjectMeta{Name: RestoredName(dv), Labels: claim, Annotations: target}), true},
		"a pod of a claim's name":       {pod(metav1.ObjectMeta{Name: RestoredName(dv), Labels: worker, Annotations: target}), false},
		"a claim of a pod's name":       {pvc(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: claim, Annotations: target}), false},
		"a name without a UID":          {pod(metav1.ObjectMeta{Name: "-source-pod", Labels: worker, Annotations: target}), false},
		"a pod with a claim's labels":   {pod(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: claim, Annotations: target}), false},
		"a claim with a pod's labels":   {pvc(metav1.ObjectMeta{Name: RestoredName(dv), Labels: worker, Annotations: target}), false},
		"one that names no DataVolume":  {pod(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: worker}), false},
		"one that says no namespace":    {pod(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: worker, Annotations: map[string]string{AnnTarget: "copy"}}), false},
		"one that has an owner":         {pod(metav1.ObjectMeta{Name: SourcePodName(dv), Labels: worker, Annotations: target, OwnerReferences: owner}), false},
		"a DataVolume's own worker pod": {pod(metav1.ObjectMeta{Name: WorkerName(dv), Labels: worker, Annotations: target}), false},
	} {
		if got := MayBeLeft(c.object); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if of, uid, ok := MadeFor(c.object); c.want && (of.String() != "ns/copy" || uid != dv.UID || !ok) {
			t.Errorf("%s is of %s, %s, %v", name, of, uid, ok)
		}
	}
}

func TestWhosePodAWorkerIs(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "11111111-2222-3333-4444-555555555555"}}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	worker := map[string]string{v1.AppLabel: WorkerAppLabel}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"here, its own":                {metav1.ObjectMeta{Namespace: "ns", Labels: worker, OwnerReferences: owner}, true},
		"here, a user's":               {metav1.ObjectMeta{Namespace: "ns", OwnerReferences: owner}, false},
		"here, nobody's":               {metav1.ObjectMeta{Namespace: "ns", Labels: worker}, false},
		"elsewhere, virt-controller's": {metav1.ObjectMeta{Namespace: "golden", Labels: worker}, true},
		"elsewhere, a user's":          {metav1.ObjectMeta{Namespace: "golden", OwnerReferences: owner}, false},
	} {
		if got := IsWorkerOf(dv, &corev1.Pod{ObjectMeta: c.meta}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
