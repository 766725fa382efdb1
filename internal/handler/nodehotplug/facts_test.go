package nodehotplug

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// TestWhatWasDecidedOnOneVersionIsNotSaidOnAnother: between a decision and its report in the status, virt-controller
// removes the volume's next pod from the record. The pod may be deleted from then on.
func TestWhatWasDecidedOnOneVersionIsNotSaidOnAnother(t *testing.T) {
	seen := world{
		spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", qemu: diskhotplug.Plugged, verified: "y",
		pods: []hotplug.Pod{pod("x", true), pod("y", true)}, recorded: []string{"hp-x", "hp-y"},
	}.observed()
	seen.VMI.ResourceVersion = "1"
	w := NewWorker(Env{Now: time.Now})
	w.stale, w.disks, w.verified = false, seen.Disks, seen.Verified
	look := func(o Observed) {
		t.Helper()
		if _, _, err := w.Look(t.Context(), nil, View{VMI: o.VMI, Record: o.Record, AttachmentPods: o.AttachmentPods}); err != nil {
			t.Fatal(err)
		}
	}
	look(seen)
	if got := w.Facts(seen.VMI)["a"].PodUID; got != "y" {
		t.Fatalf("on the version that was decided on, pod %q is named", got)
	}
	next := seen
	next.VMI = seen.VMI.DeepCopy()
	next.VMI.ResourceVersion = "2"
	next.Record = hotplug.Record{Pods: []hotplug.AttachmentPod{{Name: "hp-x", UID: types.UID("x")}}}
	if got := w.Facts(next.VMI); len(got) > 0 {
		t.Errorf("on the next version, this is said: %+v", got)
	}
	look(next)
	if got := w.Facts(next.VMI)["a"].PodUID; got != "x" {
		t.Errorf("decided on the next version, pod %q is named", got)
	}
}
