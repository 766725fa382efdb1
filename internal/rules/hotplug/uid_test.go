package hotplug

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// noted is an attachment pod that has been seen to run.
func noted(h AttachmentPod) AttachmentPod {
	h.UID = types.UID("u" + strings.TrimPrefix(h.Name, "hp-"))
	return h
}

func TestTheUIDOfAPodIsNotedWithTheWriteThatUsesIt(t *testing.T) {
	o := Observed{
		Prefix: "hp", MaxAttachmentPods: 1, Wanted: want("a"), Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}},
		Entries: []Entry{through(0, v1.VolumeBound, "a")}, Pods: []Pod{starts(1, "a")},
	}
	if plan := decided(o); plan.Changed {
		t.Errorf("a pod that does not run yet is written: %+v", plan.Record)
	}
	o.Pods = []Pod{runs(1, "a")}
	plan := decided(o)
	if e := plan.Entries[0]; e.Phase != v1.HotplugVolumeAttachedToNode || e.PodUID != "u1" || plan.Record.Pods[0].UID != "u1" {
		t.Errorf("the entry is %+v, the record %+v", e, plan.Record)
	}
}

func TestAPodIsHandedOverToOnlyAfterItsUIDWasNoted(t *testing.T) {
	o := Observed{
		Prefix: "hp", MaxAttachmentPods: 1, Wanted: want("a", "b"),
		Record:  Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "a", "b")}},
		Entries: []Entry{through(1, v1.VolumeReady, "a"), through(0, v1.VolumeBound, "b")},
		Pods:    []Pod{runs(1, "a"), runs(2, "a", "b")},
	}
	plan := decided(o)
	if !plan.Changed || !plan.Record.Has("hp-2", "u2") {
		t.Errorf("the record is %+v", plan.Record)
	}
}

// A tenant who may make pods waits until an attachment pod is gone, and takes its name. It must not count.
func TestAPodOfAnotherUIDIsForeign(t *testing.T) {
	foreign := runs(1, "a")
	foreign.UID = "forged"
	o := Observed{
		Prefix: "hp", MaxAttachmentPods: 1, Wanted: want("a"), Record: Record{Generation: 1, Pods: []AttachmentPod{noted(held(1, "a"))}},
		Pods: []Pod{foreign},
	}
	for _, phase := range []v1.VolumePhase{v1.VolumeBound, v1.HotplugVolumeAttachedToNode, v1.VolumeReady} {
		n := 1
		if phase == v1.VolumeBound {
			n = 0
		}
		o.Live, o.Entries = false, []Entry{through(n, phase, "a")}
		if plan := decided(o); plan.Needs != NeedPods || plan.Changed {
			t.Errorf("%s: on the word of a cache: %+v", phase, plan)
		}
		o.Live = true
		plan := decided(o)
		if len(plan.Record.Pods) != 1 || plan.Record.Pods[0].Name != "hp-2" || plan.Record.Pods[0].UID != "" {
			t.Errorf("%s: the record is %+v", phase, plan.Record)
		}
		for _, e := range plan.Entries {
			if e.PodUID == "forged" {
				t.Errorf("%s: the foreign pod serves: %+v", phase, e)
			}
		}
	}
}

func TestAPodWhoseUIDWasNotedIsNeverMadeAgain(t *testing.T) {
	o := Observed{
		Prefix: "hp", MaxAttachmentPods: 1, Wanted: want("a"), Live: true,
		Record:  Record{Generation: 1, Pods: []AttachmentPod{noted(held(1, "a"))}},
		Entries: []Entry{through(0, v1.VolumeBound, "a")},
	}
	plan := decided(o)
	if len(plan.Create) > 0 || len(plan.Record.Pods) != 1 || plan.Record.Pods[0].Name != "hp-2" {
		t.Errorf("planned: %+v", plan)
	}
}
