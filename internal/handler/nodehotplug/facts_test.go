package nodehotplug

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// TestWhatWasDecidedOnOneVersionIsNotSaidOnAnother: virt-controller removes the volume's next pod from the record. The pod
// may be deleted from then on. (The driver decides on the version on which it reports.)
func TestWhatWasDecidedOnOneVersionIsNotSaidOnAnother(t *testing.T) {
	seen := world{
		spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", qemu: diskhotplug.Plugged, verified: "y",
		pods: []hotplug.Pod{pod("x", true), pod("y", true)}, recorded: []string{"hp-x", "hp-y"},
	}.observed()
	seen.VMI.ResourceVersion = "1"
	said := func(o Observed) types.UID {
		decisions := Decide(o)
		return Facts(o.VMI, decisions, Attempts{}.For(decisions), o.Disks, nil)["a"].PodUID
	}
	if got := said(seen); got != "y" {
		t.Fatalf("on the version that was decided on, pod %q is named", got)
	}
	next := seen
	next.VMI = seen.VMI.DeepCopy()
	next.VMI.ResourceVersion = "2"
	next.Record = hotplug.Record{Pods: []hotplug.AttachmentPod{{Name: "hp-x", UID: types.UID("x")}}}
	if got := said(next); got != "x" {
		t.Errorf("decided on the next version, pod %q is named", got)
	}
}

var (
	noon          = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	toOpen, toAsk = []Decision{{Volume: "a", Action: Open}}, []Decision{{Volume: "a", Action: Ask}}
)

func TestAFailedActionIsDelayedAndReportedAfterSomeFailures(t *testing.T) {
	now := noon
	failing := Attempts{}.For(toOpen)
	if due, after := failing.Schedule(toOpen, nil, now); !due || after != 0 {
		t.Errorf("at first: %v, %v", due, after)
	}
	if due, after := failing.Schedule(toOpen, map[string]bool{"a": true}, now); due || after != 0 {
		t.Errorf("while it is being opened: %v, %v", due, after)
	}
	vmi := world{phase: v1.HotplugVolumeAttachedToNode, claim: "c", pod: "x"}.observed().VMI
	for n := range reportAfter {
		if got := Facts(vmi, toOpen, failing, nil, nil)["a"].Reason; got != "" {
			t.Errorf("after %d failures it says %s", n, got)
		}
		failing = failing.Record("a", Open, errors.New("no storage"), now)
	}
	if got := Facts(vmi, toOpen, failing, nil, nil)["a"]; got.Reason != ReasonFailed || got.Message != "no storage" || got.Phase != v1.HotplugVolumeAttachedToNode {
		t.Errorf("after %d failures it says %+v", reportAfter, got)
	}
	if due, after := failing.Schedule(toOpen, nil, now); due || after <= 0 {
		t.Errorf("after failures: %v, %v", due, after)
	}
}

func TestAnotherActionBeginsAnew(t *testing.T) {
	now, failing := noon, Attempts{}.For(toOpen)
	for range reportAfter {
		failing = failing.Record("a", Open, errors.New("no storage"), now)
	}
	asked := failing.For(toAsk)
	if due, _ := asked.Schedule(toAsk, nil, now); !due {
		t.Error("another action waits for the first")
	}
	if due, after := asked.Record("a", Ask, nil, now).Schedule(toAsk, nil, now); due || after != firstAsk {
		t.Errorf("a guest that was asked: %v, %v", due, after)
	}
	if next := failing.Record("a", Open, nil, now); next["a"].count != reportAfter {
		t.Errorf("an action that succeeds forgets the failures before it has an effect: %+v", next)
	}
	if len(failing.For(nil)) != 0 || len(asked) != 1 || asked["a"].count != 0 {
		t.Errorf("attempts are changed by what is recorded later: %+v", asked)
	}
}
