package hotplug

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// "a=x" is volume a on claim x.
func vol(names ...string) []Volume {
	var out []Volume
	for _, n := range names {
		name, claim, ok := strings.Cut(n, "=")
		if !ok {
			claim = name
		}
		out = append(out, Volume{Name: name, Claim: claim})
	}
	return out
}

func want(names ...string) []Wanted {
	var out []Wanted
	for _, v := range vol(names...) {
		out = append(out, Wanted{Volume: v, Attach: true})
	}
	return out
}

// through is the entry of a volume in a phase through pod hp-<n>.
func through(n int, phase v1.VolumePhase, name string) Entry {
	e := Entry{Volume: vol(name)[0], Phase: phase}
	if n > 0 {
		e.PodName, e.PodUID = fmt.Sprintf("hp-%d", n), types.UID(fmt.Sprint("u", n))
	}
	return e
}

func held(n int, names ...string) AttachmentPod {
	return AttachmentPod{Name: fmt.Sprintf("hp-%d", n), Volumes: vol(names...)}
}

func runs(n int, names ...string) Pod {
	return Pod{Name: fmt.Sprintf("hp-%d", n), UID: types.UID(fmt.Sprint("u", n)), Created: time.Unix(int64(n), 0), Running: true, Volumes: vol(names...)}
}

func starts(n int, names ...string) Pod {
	pod := runs(n, names...)
	pod.Running = false
	return pod
}

// decided returns the plan after its question about maintenance was answered with no.
func decided(o Observed) Plan {
	o.MaintainersAsked = true
	return Decide(o)
}

// told formats a plan.
func told(p Plan) string {
	var out []string
	for _, e := range p.Entries {
		line := fmt.Sprintf("%s=%s %s", e.Name, e.Claim, e.Phase)
		if e.PodName != "" {
			line += " " + e.PodName
		}
		out = append(out, line)
	}
	for _, h := range p.Record.Pods {
		var names []string
		for _, v := range h.Volumes {
			names = append(names, v.Name)
		}
		out = append(out, fmt.Sprintf("%s{%s}", h.Name, strings.Join(names, " ")))
	}
	for _, h := range p.Create {
		out = append(out, "make "+h.Name)
	}
	for i := range p.Delete {
		out = append(out, "delete "+p.Delete[i].Name)
	}
	if p.Needs != "" {
		out = append(out, "ask")
	}
	return strings.Join(out, "; ")
}

func TestPlan(t *testing.T) {
	const ready, unmounted, attachedTo = v1.VolumeReady, v1.HotplugVolumeUnMounted, v1.HotplugVolumeAttachedToNode
	alone := want("c")
	alone[0].Alone = true
	waiting := []Wanted{{Volume: vol("d")[0], Reason: "PVCNotReady", Message: "it waits"}}
	empty := []Wanted{{Volume: vol("e")[0], Attach: true, Alone: true, Empty: true, Reason: "WaitForFirstConsumer"}}
	filling := []Wanted{{Volume: vol("e")[0], Reason: "DataVolumeNotReady"}}
	scheduling := starts(1, "e")
	scheduling.Scheduling = true
	stuck := starts(1, "a", "b")
	stuck.Stuck, stuck.Why = true, "no room"
	ending := runs(1, "a", "b")
	ending.Terminating = true
	sameSecond := runs(2, "a", "b")
	sameSecond.Created, sameSecond.UID = time.Unix(1, 0), "a smaller one"
	tests := map[string]struct {
		o    Observed
		want string
	}{
		"new volumes share an attachment pod, those that must be alone aside": {
			Observed{Wanted: slices.Concat(want("a", "b"), alone)},
			"a=a Bound; b=b Bound; c=c Bound; hp-1{c}; hp-2{a b}"},
		"one that waits for its claim has none": {
			Observed{Wanted: waiting}, "d=d Pending"},
		"one that is added leaves the others alone": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a Ready hp-1; b=b Bound; hp-1{a}; hp-2{b}"},
		"a recorded attachment pod is made": {
			Observed{Wanted: want("a"), Entries: []Entry{through(0, v1.VolumeBound, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}},
			"a=a Bound; hp-1{a}; make hp-1"},
		"with a pod that runs it is attached": {
			Observed{Wanted: want("a"), Entries: []Entry{through(0, v1.VolumeBound, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a AttachedToNode hp-1; hp-1{a}"},
		"a claim that is only bound is not given to the guest": {
			Observed{Wanted: empty, Entries: []Entry{{Volume: vol("e")[0], Phase: v1.VolumePending, Reason: "WaitForFirstConsumer"}},
				Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "e")}}, Pods: []Pod{runs(1, "e")}},
			"e=e Pending; hp-1{e}"},
		"an attachment pod that does not start is split": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(0, v1.VolumeBound, "a"), through(0, v1.VolumeBound, "b")},
				Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a", "b")}}, Pods: []Pod{stuck}},
			"a=a Bound; b=b Bound; hp-2{a}; hp-3{b}"},
		"the same name on another claim waits until the first is out of the guest": {
			Observed{Wanted: want("a=x"), Entries: []Entry{through(1, v1.HotplugVolumeDetaching, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a Detaching hp-1; hp-1{a}"},
		"and then is a new volume": {
			Observed{Wanted: want("a=x"), Entries: []Entry{through(1, unmounted, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=x Bound; hp-2{a}"},
		"a removed volume's entry stays while a pod holds it, and the pod's end is asked for": {
			Observed{Entries: []Entry{through(1, unmounted, "a")}, Record: Record{Generation: 1}, Pods: []Pod{runs(1, "a")}},
			"a=a UnMountedFromPod hp-1; ask"},
		"the pod goes when the API server says the same": {
			Observed{Entries: []Entry{through(1, unmounted, "a")}, Record: Record{Generation: 1}, Pods: []Pod{runs(1, "a")}, Live: true},
			"a=a UnMountedFromPod hp-1; delete hp-1"},
		"a claim is bound, and the pod that it is bound by gets its node next": {
			Observed{Wanted: filling, Entries: []Entry{{Volume: vol("e")[0], Phase: v1.VolumePending, Reason: "DataVolumeNotReady"}},
				Record: Record{Generation: 1}, Pods: []Pod{scheduling}},
			"e=e Pending"},
		"and the API server says the same": {
			Observed{Wanted: filling, Entries: []Entry{{Volume: vol("e")[0], Phase: v1.VolumePending, Reason: "DataVolumeNotReady"}},
				Record: Record{Generation: 1}, Pods: []Pod{scheduling}, Live: true},
			"e=e Pending"},
		"the pod that the claim was bound by goes when it has its node": {
			Observed{Wanted: filling, Entries: []Entry{{Volume: vol("e")[0], Phase: v1.VolumePending, Reason: "DataVolumeNotReady"}},
				Record: Record{Generation: 1}, Pods: []Pod{starts(1, "e")}, Live: true},
			"e=e Pending; delete hp-1"},
		"the entry goes with the pod": {
			Observed{Entries: []Entry{through(1, unmounted, "a")}, Record: Record{Generation: 1}}, ""},
		"what shared a pod with a removed volume gets another": {
			Observed{Wanted: want("b"), Entries: []Entry{through(1, unmounted, "a"), through(1, ready, "b")},
				Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a", "b")}}, Pods: []Pod{runs(1, "a", "b")}},
			"a=a UnMountedFromPod hp-1; b=b Ready hp-1; hp-1{a b}; hp-2{b}"},
		"and the old one stays until it has been handed over": {
			Observed{Wanted: want("b"), Entries: []Entry{through(1, unmounted, "a"), through(1, ready, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a", "b"), held(2, "b")}}, Pods: []Pod{runs(1, "a", "b"), runs(2, "b")}},
			"a=a UnMountedFromPod hp-1; b=b Ready hp-1; hp-1{a b}; hp-2{b}"},
		"a pod that is taken away is replaced": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a"), through(1, ready, "b")},
				Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a", "b")}}, Pods: []Pod{ending}},
			"a=a Ready hp-1; b=b Ready hp-1; hp-2{a b}"},
		"that one is gone is asked of the API server": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}},
			"a=a Ready hp-1; hp-1{a}; ask"},
		"and then replaced": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Live: true},
			"a=a Ready hp-1; hp-2{a}"},
		"a successor of the same second that virt-handler would not prefer is made anew": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a"), through(1, ready, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a", "b"), held(2, "a", "b")}}, Pods: []Pod{runs(1, "a", "b"), sameSecond}},
			"a=a Ready hp-1; b=b Ready hp-1; hp-1{a b}; hp-3{a b}"},
		"a record that was removed is found again in the pods, and no name is used twice": {
			Observed{Wanted: want("a"), Entries: []Entry{through(7, ready, "a")}, Pods: []Pod{runs(7, "a")}},
			"a=a Ready hp-7; hp-8{a}"},
		"more attachment pods than should be are merged when all is quiet": {
			Observed{Wanted: want("a", "b", "c"), Settled: true, MaxAttachmentPods: 2,
				Entries: []Entry{through(1, ready, "a"), through(2, ready, "b"), through(3, ready, "c")},
				Record:  Record{Generation: 3, Pods: []AttachmentPod{held(1, "a"), held(2, "b"), held(3, "c")}}, Pods: []Pod{runs(1, "a"), runs(2, "b"), runs(3, "c")}},
			"a=a Ready hp-1; b=b Ready hp-2; c=c Ready hp-3; hp-1{a}; hp-2{b}; hp-3{c}; hp-4{a b}"},
		"nothing new is brought into a guest that shuts down, and nothing is let go": {
			Observed{Stage: Ending, Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a"), through(0, v1.VolumeBound, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a Ready hp-1; b=b Bound; hp-1{a}"},
		"all pods go with the guest": {
			Observed{Stage: Over, Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a Ready hp-1; hp-1{a}; delete hp-1"},
		"nothing happens while the guest moves": {
			Observed{Stage: Frozen, Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a Ready hp-1; hp-1{a}"},
		"a volume that virt-handler may be bringing in is its to give back": {
			Observed{Entries: []Entry{through(1, attachedTo, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}},
			"a=a AttachedToNode hp-1; hp-1{a}"},
		"the same when its pod has died": {
			Observed{Entries: []Entry{through(1, attachedTo, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{held(2, "a")}}, Live: true},
			"a=a AttachedToNode hp-1; hp-2{a}; make hp-2"},
		"what it may be bringing in from a pod that has died gets another attachment pod": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, attachedTo, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Live: true},
			"a=a AttachedToNode hp-1; hp-2{a}"},
		"and then that one's pod": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, attachedTo, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(2, "a"))}},
				Pods: []Pod{runs(2, "a")}, Live: true},
			"a=a AttachedToNode hp-2; hp-2{a}"},
		"but not on the word of a cache, which lacks the first": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, attachedTo, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(2, "a"))}},
				Pods: []Pod{runs(2, "a")}},
			"a=a AttachedToNode hp-1; hp-2{a}; ask"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Prefix, test.o.Budget.State = "hp", BudgetRight
			plan := decided(test.o)
			if got := told(plan); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
			if plan.Changed && (len(plan.Create) > 0 || len(plan.Delete) > 0) {
				t.Error("a plan that changes the VMI does more than that")
			}
		})
	}
}

func TestWhyAAttachmentPodDoesNotStartIsSaidOfItsVolumes(t *testing.T) {
	o := Observed{Prefix: "hp", Wanted: want("a"), Entries: []Entry{through(0, v1.VolumeBound, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}}
	o.Failures = map[string]string{"hp-1": "exceeded quota"}
	if e := decided(o).Entries[0]; e.Reason != ReasonAttachFailed || e.Message != "exceeded quota" {
		t.Errorf("a pod that can't be made: %+v", e)
	}
	pod := starts(1, "a")
	pod.Why = "0/2 nodes are available"
	o.Pods = []Pod{pod}
	if e := decided(o).Entries[0]; e.Message != pod.Why {
		t.Errorf("a pod that does not start: %+v", e)
	}
	o.Entries = []Entry{through(7, v1.HotplugVolumeAttachedToNode, "a")}
	if e := decided(o).Entries[0]; e.Message != pod.Why || e.PodName != "hp-7" {
		t.Errorf("the same, after a pod that has died: %+v", e)
	}
	o.Entries[0].Reason, o.Entries[0].Message = "FailedHotplug", "virt-handler's"
	if e := decided(o).Entries[0]; e.Message != "virt-handler's" {
		t.Errorf("what virt-handler says of it is gone: %+v", e)
	}
}

func TestRecordSurvivesItsAnnotation(t *testing.T) {
	r := Record{Generation: 3, Pods: []AttachmentPod{held(3, "a", "b=x")}}
	back, err := ReadRecord(map[string]string{RecordAnnotation: r.Text()})
	if err != nil || !sameRecord(r, back) {
		t.Errorf("%v came back as %v, %v", r, back, err)
	}
	if _, err := ReadRecord(map[string]string{RecordAnnotation: "{"}); err == nil {
		t.Error("an unreadable record is not noticed")
	}
	if text := (Record{}).Text(); text != "" {
		t.Errorf("nothing is recorded as %q", text)
	}
}
