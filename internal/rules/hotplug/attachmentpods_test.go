package hotplug

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// Each case has several attachment pods: the first ones are no reason to leave the others alone, or there are as many
// as allowed.
func TestPlanOfSeveralAttachmentPods(t *testing.T) {
	const ready, unmounted, attachedTo, bound = v1.VolumeReady, v1.HotplugVolumeUnMounted, v1.HotplugVolumeAttachedToNode, v1.VolumeBound
	edited := func(pod Pod, edit func(*Pod)) Pod { edit(&pod); return pod }
	stuck := func(p *Pod) { p.Stuck = true }
	cooling := func(p *Pod) { p.Finished, p.Cooling = true, true }
	terminating := func(p *Pod) { p.Terminating = true }
	// sameSecond gives a pod the first one's creation second, and an earlier place in the order.
	sameSecond := func(p *Pod) { p.Created, p.UID = time.Unix(1, 0), "a smaller one" }
	alone := func(names ...string) []Wanted {
		list := want(names...)
		list[0].Alone = true
		return list
	}
	// three has three volumes in a pod each, of which two pods should stay.
	three := func(edit func(*Observed)) Observed {
		o := Observed{
			Wanted: want("a", "b", "c"), Settled: true, MaxAttachmentPods: 2,
			Entries: []Entry{through(1, ready, "a"), through(2, ready, "b"), through(3, ready, "c")},
			Record:  Record{Generation: 4, Pods: []AttachmentPod{noted(held(1, "a")), noted(held(2, "b")), noted(held(3, "c"))}},
			Pods:    []Pod{runs(1, "a"), runs(2, "b"), runs(3, "c")},
		}
		edit(&o)
		return o
	}
	const threePods = "a=a Ready hp-1; b=b Ready hp-2; c=c Ready hp-3; hp-1{a}; hp-2{b}; hp-3{c}"
	for name, test := range map[string]struct {
		o    Observed
		want string
	}{
		"two pods start: what is added waits": {
			Observed{Wanted: want("a", "b", "c"), Entries: []Entry{through(0, bound, "a"), through(0, bound, "b"), through(0, bound, "c")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a"), held(2, "b")}}, Pods: []Pod{starts(1, "a"), starts(2, "b")}},
			"a=a Bound; b=b Bound; c=c Bound; hp-1{a}; hp-2{b}"},
		"of two pods one runs, though its volume is not in the guest yet": {
			Observed{Wanted: want("a", "b", "c"), Entries: []Entry{through(1, attachedTo, "a"), through(0, bound, "b"), through(0, bound, "c")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a"), held(2, "b")}}, Pods: []Pod{runs(1, "a"), starts(2, "b")}},
			"a=a AttachedToNode hp-1; b=b Bound; c=c Bound; hp-1{a}; hp-2{b}; hp-3{c}"},
		"of two pods one is stuck": {
			Observed{Wanted: want("a", "b", "c"), Entries: []Entry{through(0, bound, "a"), through(0, bound, "b"), through(0, bound, "c")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a"), held(2, "b")}}, Pods: []Pod{edited(starts(1, "a"), stuck), starts(2, "b")}},
			"a=a Bound; b=b Bound; c=c Bound; hp-1{a}; hp-2{b}; hp-3{c}"},
		"of two pods one has ended, and its successor would do the same": {
			Observed{Wanted: want("a", "b", "c"), Entries: []Entry{through(0, bound, "a"), through(0, bound, "b"), through(0, bound, "c")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a"), held(2, "b")}}, Pods: []Pod{edited(starts(1, "a"), cooling), starts(2, "b")}},
			"a=a Bound; b=b Bound; c=c Bound; hp-1{a}; hp-2{b}; hp-3{c}"},
		"one runs, two start": {
			Observed{Wanted: want("a", "b", "c", "d"), Entries: []Entry{through(1, ready, "a"), through(0, bound, "b"), through(0, bound, "c"), through(0, bound, "d")},
				Record: Record{Generation: 3, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b"), held(3, "c")}}, Pods: []Pod{runs(1, "a"), starts(2, "b"), starts(3, "c")}},
			"a=a Ready hp-1; b=b Bound; c=c Bound; d=d Bound; hp-1{a}; hp-2{b}; hp-3{c}"},
		"of two that start one is for a volume that must be alone": {
			Observed{Wanted: alone("a", "b", "c"), Entries: []Entry{through(0, bound, "a"), through(0, bound, "b"), through(0, bound, "c")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "a"), held(2, "b")}}, Pods: []Pod{starts(1, "a"), starts(2, "b")}},
			"a=a Bound; b=b Bound; c=c Bound; hp-1{a}; hp-2{b}; hp-3{c}"},
		"the second pod is stuck with two volumes": {
			Observed{Wanted: want("x", "a", "b"), Entries: []Entry{through(1, ready, "x"), through(0, bound, "a"), through(0, bound, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "x")), held(2, "a", "b")}}, Pods: []Pod{runs(1, "x"), edited(starts(2, "a", "b"), stuck)}},
			"x=x Ready hp-1; a=a Bound; b=b Bound; hp-1{x}; hp-3{a}; hp-4{b}"},
		"the first pod starts, the second has a volume that is out": {
			Observed{Wanted: want("n", "b"), Entries: []Entry{through(0, bound, "n"), through(2, unmounted, "a"), through(2, ready, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{held(1, "n"), noted(held(2, "a", "b"))}}, Pods: []Pod{starts(1, "n"), runs(2, "a", "b")}},
			"n=n Bound; a=a UnMountedFromPod hp-2; b=b Ready hp-2; hp-1{n}; hp-2{a b}; hp-3{b}"},
		"the first pod has a volume that is on its way out, the second one that is out": {
			Observed{Wanted: want("y", "b"), Entries: []Entry{
				through(1, v1.HotplugVolumeDetaching, "x"), through(1, ready, "y"), through(2, unmounted, "a"), through(2, ready, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "x", "y")), noted(held(2, "a", "b"))}}, Pods: []Pod{runs(1, "x", "y"), runs(2, "a", "b")}},
			"x=x Detaching hp-1; y=y Ready hp-1; a=a UnMountedFromPod hp-2; b=b Ready hp-2; hp-1{x y}; hp-2{a b}; hp-3{b}"},
		"three pods, and all is quiet":               {three(func(*Observed) {}), threePods + "; hp-5{a b}"},
		"three pods, and something has just changed": {three(func(o *Observed) { o.Settled = false }), threePods},
		"three pods of a guest that shuts down":      {three(func(o *Observed) { o.Stage = Ending }), threePods},
		"three pods, one volume is being handed over": {three(func(o *Observed) {
			o.Record.Pods = append(o.Record.Pods, noted(held(4, "a")))
			o.Pods = append(o.Pods, runs(4, "a"))
		}), threePods + "; hp-4{a}"},
		"three pods, and in front of them one for a volume that must be alone": {three(func(o *Observed) {
			o.Wanted = append(o.Wanted, alone("x")...)
			o.Entries = append(o.Entries, through(9, ready, "x"))
			o.Record.Pods = append([]AttachmentPod{noted(held(9, "x"))}, o.Record.Pods...)
			o.Pods = append(o.Pods, runs(9, "x"))
		}), "a=a Ready hp-1; b=b Ready hp-2; c=c Ready hp-3; x=x Ready hp-9; hp-9{x}; hp-1{a}; hp-2{b}; hp-3{c}; hp-10{a b}"},
		"three pods, of which the first has most": {three(func(o *Observed) {
			o.Wanted = append(o.Wanted, want("z")...)
			o.Entries = append(o.Entries, through(1, ready, "z"))
			o.Record.Pods[0], o.Pods[0] = noted(held(1, "a", "z")), runs(1, "a", "z")
		}), "a=a Ready hp-1; b=b Ready hp-2; c=c Ready hp-3; z=z Ready hp-1; hp-1{a z}; hp-2{b}; hp-3{c}; hp-5{b c}"},
		"a pod that is not recorded serves the second of its volumes, the first is unknown": {
			Observed{Live: true, Wanted: want("a"), Entries: []Entry{through(1, ready, "a")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(2, "a"))}}, Pods: []Pod{runs(1, "unknown", "a"), runs(2, "a")}},
			"a=a Ready hp-1; hp-2{a}"},
		"a pod that is not recorded has the second of its volumes, whose own pod goes": {
			Observed{Live: true, Wanted: want("n", "a"), Entries: []Entry{through(0, bound, "n"), through(3, ready, "a")},
				Record: Record{Generation: 5, Pods: []AttachmentPod{held(4, "a"), held(5, "n")}},
				Pods:   []Pod{runs(1, "n", "a"), edited(runs(3, "a"), terminating), starts(4, "a"), starts(5, "n")}},
			"n=n Bound; a=a Ready hp-3; hp-4{a}; hp-5{n}"},
		"a successor that virt-handler would not prefer, for the second of its volumes": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(0, bound, "a"), through(1, ready, "b")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "b")), held(2, "a", "b")}}, Pods: []Pod{runs(1, "b"), edited(runs(2, "a", "b"), sameSecond)}},
			"a=a Bound; b=b Ready hp-1; hp-1{b}; hp-3{a b}"},
		"another pod of the same second, for a volume that the guest is just given": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, attachedTo, "a")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "a")}}, Pods: []Pod{runs(1, "a"), edited(runs(2, "a"), sameSecond)}},
			"a=a AttachedToNode hp-1; hp-1{a}; hp-2{a}"},
		"volumes that have waited and are not wanted any more": {
			Observed{Entries: []Entry{through(0, v1.VolumePending, "a"), through(0, bound, "b"), through(0, "", "c")}}, ""},
		"a volume in a phase that this version does not know": {
			Observed{Entries: []Entry{through(0, "Strange", "a")}}, "a=a Strange"},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Prefix, test.o.Budget.State = "hp", BudgetRight
			if got := told(decided(test.o)); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestWhatIsSaidOfAVolume(t *testing.T) {
	saying := func(e Entry, reason, message string) Entry {
		e.Reason, e.Message = reason, message
		return e
	}
	waiting := []Wanted{{Volume: vol("a")[0], Reason: "DataVolumeNotReady", Message: "42 %"}}
	for name, test := range map[string]struct {
		o    Observed
		want Entry
	}{
		"what its claim waits for now": {
			Observed{Wanted: waiting, Entries: []Entry{saying(through(0, v1.VolumePending, "a"), "PVCNotReady", "it is pending")}},
			saying(through(0, v1.VolumePending, "a"), "DataVolumeNotReady", "42 %")},
		"the same after it was out of the guest": {
			Observed{Wanted: waiting, Entries: []Entry{through(1, v1.HotplugVolumeUnMounted, "a")}},
			saying(through(0, v1.VolumePending, "a"), "DataVolumeNotReady", "42 %")},
		"what virt-handler says, as long as its pod serves it": {
			Observed{Wanted: want("a"), Entries: []Entry{saying(through(1, v1.HotplugVolumeAttachedToNode, "a"), "FailedHotplug", "no such disk")},
				Record: Record{Generation: 1, Pods: []AttachmentPod{noted(held(1, "a"))}}, Pods: []Pod{runs(1, "a")}},
			saying(through(1, v1.HotplugVolumeAttachedToNode, "a"), "FailedHotplug", "no such disk")},
		"why its own pod is not made, and not what another one waits for": {
			Observed{Live: true, Wanted: want("a", "b"), Entries: []Entry{through(1, v1.HotplugVolumeAttachedToNode, "a"), through(0, v1.VolumeBound, "b")},
				Record: Record{Generation: 3, Pods: []AttachmentPod{held(3, "b"), held(2, "a")}}, Failures: map[string]string{"hp-2": "exceeded quota"},
				Budget: Budget{Why: "there is no budget"}},
			saying(through(1, v1.HotplugVolumeAttachedToNode, "a"), ReasonAttachFailed, "exceeded quota")},
	} {
		test.o.Prefix = "hp"
		if got := decided(test.o).Entries[0]; got != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, test.want)
		}
	}
}
