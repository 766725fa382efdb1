package invariant

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// told is one event of a watch; the history gets them in any order.
type told func(h *History, version string)

func vmiSays(phase v1.VolumePhase, pod types.UID) told {
	return func(h *History, version string) {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vmi", ResourceVersion: version}}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: pod}}}
		h.VMI(vmi)
	}
}

func podIs(uid types.UID, edit func(*corev1.Pod)) told {
	return func(h *History, version string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), UID: uid, ResourceVersion: version}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		gone := false
		if edit != nil {
			edit(pod)
			gone = pod.Annotations["gone"] != ""
		}
		h.Pod(pod, gone)
	}
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }
func gone(pod *corev1.Pod)        { pod.Annotations = map[string]string{"gone": "yes"} }
func failed(pod *corev1.Pod)      { pod.Status.Phase = corev1.PodFailed }

func TestHistory(t *testing.T) {
	tests := map[string]struct {
		told []told
		want string
	}{
		"a handover": {[]told{
			podIs("1", nil), vmiSays(v1.VolumeReady, "1"), podIs("2", nil), vmiSays(v1.VolumeReady, "2"),
			podIs("1", terminating), podIs("1", gone)}, ""},
		"the old pod goes before the new one serves": {[]told{
			podIs("1", nil), vmiSays(v1.VolumeReady, "1"), podIs("2", nil), podIs("1", terminating), vmiSays(v1.VolumeReady, "2")},
			"H2: pod 1 is deleted, which volume data is Ready through"},
		"the only pod goes while the guest lets go": {[]told{
			podIs("1", nil), vmiSays(v1.HotplugVolumeDetaching, "1"), podIs("1", gone)},
			"H1: volume data is Detaching"},
		"a pod goes that was never of use": {[]told{
			podIs("1", nil), vmiSays(v1.VolumeBound, ""), podIs("1", gone)}, ""},
		"a pod goes from which the volume is about to come": {[]told{
			podIs("1", nil), vmiSays(v1.HotplugVolumeAttachedToNode, "1"), podIs("1", terminating)},
			"about to be brought in"},
		"a pod that fails is nobody's deletion": {[]told{
			podIs("1", nil), vmiSays(v1.VolumeReady, "1"), podIs("1", failed), podIs("1", gone)}, ""},
		"a volume is mounted from nowhere": {[]told{vmiSays(v1.HotplugVolumeMounted, "1")}, "H1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var h History
			// Two watches deliver in any order: here the last event comes first.
			for i := len(test.told) - 1; i >= 0; i-- {
				test.told[i](&h, strconv.Itoa(i+8))
			}
			err := h.Check()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("it is no violation: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestWhatQEMUHasOpenIsHeldWhateverTheStatusSays(t *testing.T) {
	holding := Pod{UID: "1", Volumes: []string{"data"}, Running: true}
	for _, phase := range []v1.VolumePhase{"", v1.VolumeBound, v1.HotplugVolumeAttachedToNode, v1.HotplugVolumeUnMounted} {
		s := Snapshot{Volumes: []Volume{{Name: "data", Phase: phase, Open: true}}}
		if Held(s) == nil {
			t.Errorf("%q: no pod holds it, and that is no violation", phase)
		}
		if s.Pods = []Pod{holding}; Held(s) != nil {
			t.Errorf("%q: a pod holds it: %v", phase, Held(s))
		}
		if s.Volumes[0].Open, s.Pods = false, nil; Held(s) != nil {
			t.Errorf("%q: QEMU does not have it: %v", phase, Held(s))
		}
	}
}

func TestAPodThatSomebodyTookAwayIsForgiven(t *testing.T) {
	var h History
	podIs("1", nil)(&h, "1")
	vmiSays(v1.VolumeReady, "1")(&h, "2")
	podIs("1", terminating)(&h, "3")
	if h.Check() == nil {
		t.Error("without being told, it is a violation")
	}
	h.DeleteExternally("1")
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}
