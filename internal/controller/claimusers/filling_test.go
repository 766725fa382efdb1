package claimusers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/contracts/layout"
)

var data = types.NamespacedName{Namespace: "ns", Name: "data"}

func apiServer(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme), cdiv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func podOn(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// forVM makes a pod wait at a gate for the lock of the VM vm.
func forVM(pod *corev1.Pod) {
	pod.Labels[layout.MaintenanceForLabel], pod.Labels[layout.ClaimLabel("data")] = "vm", ""
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
	pod.UID = "gated"
}

func TestWhoKeepsAClaimFromBeingFilled(t *testing.T) {
	attached := func(pod *corev1.Pod) {
		pod.Labels[v1.AppLabel], pod.Labels[v1.CreatedByLabel], pod.Annotations[v1.DomainAnnotation] = layout.AttachmentApp, "uid", "vmi"
	}
	vmi := func(phase v1.VolumePhase) *v1.VirtualMachineInstance {
		out := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmi", UID: "uid"}}
		out.Status.Phase = v1.Running
		out.Status.VolumeStatus = []v1.VolumeStatus{{Name: "disk", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
		return out
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	locked := vm.DeepCopy()
	locked.Labels = map[string]string{layout.MaintenanceLabel: "pod"}
	locked.Annotations = map[string]string{layout.MaintenanceUIDAnnotation: "gated"}
	for name, test := range map[string]struct {
		objects    []client.Object
		dataVolume bool
		want       string
	}{
		"none":                           {nil, true, ""},
		"one in another namespace":       {[]client.Object{podOn("pod", func(pod *corev1.Pod) { pod.Namespace = "other" })}, true, ""},
		"anybody's":                      {[]client.Object{podOn("pod")}, false, "pod pod"},
		"anybody's, and a DataVolume":    {[]client.Object{podOn("pod")}, true, ""},
		"the worker":                     {[]client.Object{podOn("importer-data")}, true, ""},
		"one that waits for a VM's lock": {[]client.Object{podOn("pod", forVM), vm}, false, ""},
		"one that has it":                {[]client.Object{podOn("pod", forVM), locked}, false, "pod pod"},
		"the guest gets the claim when it is filled":   {[]client.Object{podOn("pod", attached), vmi(v1.VolumePending)}, true, ""},
		"the guest has the claim":                      {[]client.Object{podOn("pod", attached), vmi(v1.VolumeReady)}, true, "pod pod"},
		"its VMI is gone":                              {[]client.Object{podOn("pod", attached)}, true, "pod pod"},
		"an upload may have been asked for afterwards": {[]client.Object{podOn("pod", attached), vmi(v1.VolumePending)}, false, "pod pod"},
		"a guest whose pod is gone":                    {[]client.Object{vmi(v1.VolumeReady)}, false, "VMI vmi"},
		"a guest whose pod is gone, and a DataVolume":  {[]client.Object{vmi(v1.VolumeReady)}, true, "VMI vmi"},
	} {
		got, err := User(t.Context(), apiServer(t, test.objects...), data, test.dataVolume)
		if got != test.want || err != nil {
			t.Errorf("%s: %q %v, want %q", name, got, err, test.want)
		}
	}
}

func TestWhatFillsAClaim(t *testing.T) {
	dv := func(phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "dv"}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	owned, marked := claim.DeepCopy(), claim.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv(""), cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	marked.Annotations = map[string]string{layout.AnnUploadTarget: ""}
	for name, test := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"there is no claim":               {nil, ""},
		"nothing":                         {[]client.Object{claim}, ""},
		"a DataVolume has":                {[]client.Object{owned, dv(cdiv1.Succeeded)}, ""},
		"a DataVolume":                    {[]client.Object{owned, dv(cdiv1.ImportInProgress)}, "the claim data is not filled yet by its DataVolume dv"},
		"an upload, still":                {[]client.Object{marked}, "the claim data awaits an upload: upload its disk, or take away its annotation cdi.kubevirt.io/storage.upload.target to use it as it is"},
		"a worker without an owner":       {[]client.Object{claim, podOn("importer-data")}, "the pod importer-data, which fills the claim data, has not ended"},
		"one of an upload":                {[]client.Object{claim, podOn("cdi-upload-data")}, "the pod cdi-upload-data, which fills the claim data, has not ended"},
		"a worker that has ended":         {[]client.Object{claim, podOn("importer-data", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })}, ""},
		"a pod of another kind and claim": {[]client.Object{claim, podOn("web"), podOn("importer-data", func(pod *corev1.Pod) { pod.Spec.Volumes = nil })}, ""},
	} {
		got, err := Filling(t.Context(), apiServer(t, test.objects...), data)
		if got != test.want || err != nil {
			t.Errorf("%s: %q %v, want %q", name, got, err, test.want)
		}
	}
}
