package vm

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// A VM's events must say that a disk waits for what it is copied from.
func TestAMissingSourceIsTold(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	golden := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "golden"}}
	created := "Normal SuccessfulDataVolumeCreate Created DataVolume root"
	for name, c := range map[string]struct {
		source *cdiv1.DataVolumeSource
		want   []string
	}{
		"a claim that exists":          {&cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "golden"}}, []string{created}},
		"a claim of another namespace": {&cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "other", Name: "golden"}}, []string{created, "Warning SourcePVCNotAvailabe Source PVC other/golden not available: DataVolume root waits until it exists"}},
		"no claim":                     {&cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, []string{created}},
		"a sourceRef":                  {nil, []string{created}},
	} {
		recorder := events.NewFakeRecorder(10)
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(golden).Build(), Recorder: recorder}
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "root"}, Spec: cdiv1.DataVolumeSpec{Source: c.source}}
		plan := vmcontroller.Plan{CreateDataVolumes: []*cdiv1.DataVolume{dv}}
		for range 2 {
			if err := r.keepDataVolumes(t.Context(), &v1.VirtualMachine{}, plan); err != nil {
				t.Fatal(err)
			}
			dv.ResourceVersion = ""
		}
		var told []string
		for len(recorder.Events) > 0 {
			told = append(told, <-recorder.Events)
		}
		if !slices.Equal(told, c.want) {
			t.Errorf("%s: told %q, want %q", name, told, c.want)
		}
	}
}
