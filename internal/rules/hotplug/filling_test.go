package hotplug

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func guestOn(phase v1.VirtualMachineInstancePhase, edits ...func(*v1.VirtualMachineInstance)) v1.VirtualMachineInstance {
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vmi", UID: "uid"}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
	vmi.Status.Phase = phase
	for _, edit := range edits {
		edit(&vmi)
	}
	return vmi
}

func seeGuests(f *Filling, vmis ...v1.VirtualMachineInstance) {
	for i := range vmis {
		if guest, counts := f.Guest(&vmis[i]); counts {
			f.Guests = append(f.Guests, guest)
		}
	}
}

// TestWhichGuestsKeepAClaimFromBeingFilled has guests without a pod, which was deleted by force while the guest may
// run.
func TestWhichGuestsKeepAClaimFromBeingFilled(t *testing.T) {
	const running = v1.Running
	plugged := func(phase v1.VolumePhase) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
				DataVolume: &v1.DataVolumeSource{Name: "data", Hotpluggable: true}}})
			if phase != "" {
				vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{},
					PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
			}
		}
	}
	leaving := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "no claim"}, {Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	}
	copied := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root", DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	}
	for name, test := range map[string]struct {
		vmi   v1.VirtualMachineInstance
		claim string
		// upload and filler are the obstacles for an upload into an existing claim, and for its DataVolume.
		upload, filler string
	}{
		"a guest that runs":                 {guestOn(running), "root", "VMI vmi", "VMI vmi"},
		"on another claim":                  {guestOn(running), "data", "", ""},
		"one that is handed over":           {guestOn(v1.Scheduled), "root", "VMI vmi", "VMI vmi"},
		"one that asks before it is":        {guestOn(v1.Scheduling), "root", "", ""},
		"one that has ended":                {guestOn(v1.Failed), "root", "", ""},
		"a volume that waits for its claim": {guestOn(running, plugged(v1.VolumePending)), "data", "", ""},
		"one of which nothing is said":      {guestOn(running, plugged("")), "data", "", ""},
		"one that is handed to its node":    {guestOn(running, plugged(v1.HotplugVolumeAttachedToNode)), "data", "VMI vmi", "VMI vmi"},
		"one that is plugged":               {guestOn(running, plugged(v1.VolumeReady)), "data", "VMI vmi", "VMI vmi"},
		"one that leaves":                   {guestOn(running, leaving), "data", "VMI vmi", "VMI vmi"},
		"a disk that is to be copied there": {guestOn(running, copied), "data", "VMI vmi", ""},
	} {
		for byDataVolume, want := range map[bool]string{false: test.upload, true: test.filler} {
			f := Filling{Claim: test.claim, ByDataVolume: byDataVolume}
			seeGuests(&f, guestOn(v1.Succeeded), test.vmi)
			if got, err := f.User(nil); got != want || err != nil {
				t.Errorf("%s, by its DataVolume %v: %q %v, want %q", name, byDataVolume, got, err, want)
			}
		}
	}
}

// TestPodsOfOthersDoNotKeepADataVolumeFromFillingItsClaim: such a pod may be its first consumer, without which it is
// never bound.
func TestPodsOfOthersDoNotKeepADataVolumeFromFillingItsClaim(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}}}
	pod.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
	for name, test := range map[string]struct {
		labels       map[string]string
		byDataVolume bool
		want         string
	}{
		"a pod of others":                        {nil, true, ""},
		"a pod of others, and an existing claim": {nil, false, "pod pod"},
		"a launcher pod":                         {map[string]string{v1.AppLabel: layout.LauncherApp}, true, "pod pod"},
		"an attachment pod":                      {map[string]string{v1.AppLabel: layout.AttachmentApp}, true, "pod pod"},
		"a maintenance pod":                      {map[string]string{layout.MaintenanceForLabel: "vm"}, true, "pod pod"},
	} {
		with := pod.DeepCopy()
		with.Labels, with.Annotations = test.labels, map[string]string{v1.DomainAnnotation: "vmi"}
		f := Filling{Claim: "root", ByDataVolume: test.byDataVolume, Pods: []corev1.Pod{*with}}
		if got, err := f.User(nil); got != test.want || err != nil {
			t.Errorf("%s: %q %v, want %q", name, got, err, test.want)
		}
	}
}

func TestMaintenancePodsThatWaitLetAClaimBeFilled(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: map[string]string{layout.MaintenanceForLabel: "vm"}}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}}}
	pod.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
	gated := pod.DeepCopy()
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
	unknown := errors.New("no answer")
	for name, test := range map[string]struct {
		pod   corev1.Pod
		waits bool
		err   error
		want  string
	}{
		"one that has its lock, and no gate": {pod, true, nil, "pod pod"},
		"one that waits for its lock":        {*gated, true, nil, ""},
		"one whose gate is about to go":      {*gated, false, nil, "pod pod"},
		"one of which nobody knows":          {*gated, true, unknown, ""},
	} {
		for _, byDataVolume := range []bool{false, true} {
			f := Filling{Claim: "root", ByDataVolume: byDataVolume, Pods: []corev1.Pod{test.pod}}
			got, err := f.User(func(*corev1.Pod) (bool, error) { return test.waits, test.err })
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("%s: %q %v, want %q", name, got, err, test.want)
			}
		}
	}
}
