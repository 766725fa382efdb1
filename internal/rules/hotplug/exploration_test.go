package hotplug_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
)

const (
	volumeA, volumeB, volumeC set = 1, 2, 4

	all = volumeA | volumeB | volumeC
)

// Each scenario is small in one dimension so that it can be large in another.
var scenarios = []scenario{
	{name: "one volume is plugged and unplugged, and its pod is taken away", large: true, volumes: 1, changes: 3, adds: all, removes: all, deletions: 1, maxAttachmentPods: 1},
	{name: "two volumes are plugged and unplugged", volumes: 2, changes: 2, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "a volume is plugged and unplugged beside one in use", volumes: 2, first: volumeA, changes: 2, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "a controller dies between writing and creating", volumes: 2, first: volumeA, changes: 1, adds: all, removes: all, late: 1, maxAttachmentPods: 1},
	{name: "two volumes in one pod are plugged and unplugged", large: true, volumes: 2, first: volumeA | volumeB, changes: 3, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "two volumes in two pods come, go and are merged", volumes: 2, first: volumeA | volumeB, firstApart: true, changes: 1, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "a plug fails, its pod is taken away, the volume goes", large: true, volumes: 1, changes: 3, adds: all, removes: all, deletions: 1, failing: true, maxAttachmentPods: 1},
	{name: "a plug fails beside a volume in the same pod", volumes: 2, first: volumeA, changes: 2, adds: all, removes: all, failing: true, maxAttachmentPods: 1},
	{name: "three volumes in three pods are merged", volumes: 3, first: all, firstApart: true, maxAttachmentPods: 1},
	{name: "the pod of two volumes is taken away", large: true, volumes: 2, first: volumeA | volumeB, deletions: 1, maxAttachmentPods: 1},
	{name: "two volumes of which one never attaches", volumes: 2, changes: 2, adds: all, removes: all, broken: volumeB, maxAttachmentPods: 1},
	{name: "one that never attaches beside one in use", volumes: 2, first: volumeA, changes: 3, adds: all, removes: all, broken: volumeB, maxAttachmentPods: 1},
	{name: "a claim for one pod only", volumes: 2, first: volumeA, changes: 3, adds: all, removes: all, exclusive: volumeB, maxAttachmentPods: 1},
	{name: "a guest that does not give a disk back", volumes: 2, first: volumeA | volumeB, changes: 2, adds: all, removes: all, sticky: volumeB, maxAttachmentPods: 1},
	{name: "a disk that the guest does not give back is forced out", volumes: 2, first: volumeA | volumeB, changes: 3, adds: volumeB, removes: volumeB, sticky: volumeB, forces: volumeB, maxAttachmentPods: 1},
	{name: "a disk is forced out, its pod is taken away, it comes again", large: true, volumes: 1, first: volumeA, changes: 4, adds: all, removes: all, sticky: volumeA, forces: volumeA, deletions: 1, maxAttachmentPods: 1},
}

// longScenarios are added in the long run.
var longScenarios = []scenario{
	{name: "one volume, often", volumes: 1, changes: 4, adds: all, removes: all, deletions: 2, maxAttachmentPods: 1},
	{name: "two volumes, often", volumes: 2, changes: 3, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "beside one in use, often", volumes: 2, first: volumeA, changes: 3, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "two volumes in two pods, often", volumes: 2, first: volumeA | volumeB, firstApart: true, changes: 2, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "the pod of two volumes is taken away amid a change", volumes: 2, first: volumeA | volumeB, changes: 1, adds: all, removes: all, deletions: 1, maxAttachmentPods: 1},
	{name: "three volumes are added", volumes: 3, changes: 3, adds: all, removes: all, maxAttachmentPods: 2},
	{name: "three volumes of which one never attaches", volumes: 3, changes: 3, adds: all, removes: all, broken: volumeC, maxAttachmentPods: 2},
	{name: "any disk is forced out, also when the guest would have let go", volumes: 2, first: volumeA | volumeB, changes: 3, adds: all, removes: all, sticky: volumeB, forces: all, maxAttachmentPods: 1},
	{name: "a controller dies while a disk is forced out", volumes: 2, first: volumeA | volumeB, changes: 3, adds: volumeB, removes: volumeB, sticky: volumeB, forces: volumeB, late: 1, maxAttachmentPods: 1},
	{name: "three volumes in one pod", volumes: 3, first: all, changes: 2, adds: all, removes: all, maxAttachmentPods: 1},
	{name: "a volume beside two in one pod", volumes: 3, first: volumeA | volumeB, changes: 2, adds: all, removes: all, maxAttachmentPods: 1},
}

func TestEveryReachableStateKeepsTheInvariants(t *testing.T) {
	exploration.EachScenario(t, scenarios, longScenarios, func(sc scenario) string { return sc.name },
		func(t *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			if sc.large && testing.Short() {
				t.Skip("it has many states")
			}
			sc.decide, sc.handle = withAndWithoutBudget(t), theVolume
			return explore(&sc)
		})
}

// withAndWithoutBudget decides in every reached state, and checks the effect of a missing budget: only the pods of
// volumes that the guest does not have may wait for it.
func withAndWithoutBudget(t *testing.T) func(hotplug.Observed) hotplug.Plan {
	return func(o hotplug.Observed) hotplug.Plan {
		plan := hotplug.Decide(o)
		o.Budget = hotplug.Budget{}
		bare := hotplug.Decide(o)
		used := map[hotplug.Volume]bool{}
		for _, e := range o.Entries {
			used[e.Volume] = hotplug.InUse(e.Phase)
		}
		for _, h := range bare.Guarded {
			if slices.ContainsFunc(h.Volumes, func(v hotplug.Volume) bool { return used[v] }) {
				t.Errorf("without a budget %s waits, which holds what the guest has: %+v", h.Name, o)
			}
		}
		if len(bare.Create)+len(bare.Guarded) != len(plan.Create) || bare.Changed != plan.Changed || bare.Needs != plan.Needs ||
			len(bare.Delete) != len(plan.Delete) || len(plan.Guarded) > 0 {
			t.Errorf("the budget changes more than what is made: %+v, %+v", plan, bare)
		}
		return plan
	}
}

// The seed's description: one pod holds the volumes that are ready for it, and a pod with other volumes is deleted.
func deleteWhatDoesNotMatch(o hotplug.Observed) hotplug.Plan { return oneAttachmentPod(o, false) }

// The seed's guard: the same, but old pods are deleted only when the status of every wanted volume is Ready.
func deleteWhenAllAreReady(o hotplug.Observed) hotplug.Plan { return oneAttachmentPod(o, true) }

// believeCaches trusts the caches without asking the API server.
func believeCaches(o hotplug.Observed) hotplug.Plan {
	o.Live = true
	return hotplug.Decide(o)
}

func TestWhatTheSeedDescribesIsCaught(t *testing.T) {
	tests := map[string]struct {
		decide func(hotplug.Observed) hotplug.Plan
		sc     scenario
		want   string
	}{
		"deleting what does not match, when a volume is added": {
			deleteWhatDoesNotMatch, scenario{volumes: 2, first: volumeA, changes: 1, adds: all, maxAttachmentPods: 1}, "H2"},
		"deleting when all are Ready, when a volume is removed": {
			deleteWhenAllAreReady, scenario{volumes: 2, first: volumeA | volumeB, changes: 1, removes: volumeB, maxAttachmentPods: 1}, "H2"},
		"deleting on what the caches show": {
			believeCaches, scenario{volumes: 1, changes: 1, adds: all, late: 1, maxAttachmentPods: 1}, "H2"},
		"deleting when all are Ready, with one that never is": {
			deleteWhenAllAreReady, scenario{volumes: 2, changes: 2, adds: all, broken: volumeB, maxAttachmentPods: 2}, "H5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.sc.decide, test.sc.handle = test.decide, theVolume
			expectViolation(t, &test.sc, test.want)
		})
	}
}

// decided changes virt-handler's view or decision.
func decided(see func(*nodehotplug.Observed), change func(*nodehotplug.Observed, *nodehotplug.Decision)) func(nodehotplug.Observed) nodehotplug.Decision {
	return func(o nodehotplug.Observed) nodehotplug.Decision {
		if see != nil {
			see(&o)
		}
		d := theVolume(o)
		if change != nil {
			change(&o, &d)
		}
		return d
	}
}

// everyPodIsRecorded makes virt-handler hand over to pods that the record does not name.
func everyPodIsRecorded(o *nodehotplug.Observed) {
	o.Record.Pods = nil
	for _, p := range o.AttachmentPods {
		o.Record.Pods = append(o.Record.Pods, hotplug.AttachmentPod{Name: p.Name, UID: p.UID})
	}
}

// outAsSoonAsUnwanted reports a volume as unplugged before QEMU has released it.
func outAsSoonAsUnwanted(_ *nodehotplug.Observed, d *nodehotplug.Decision) {
	if d.Phase == v1.HotplugVolumeDetaching {
		d.Phase = v1.HotplugVolumeUnMounted
	}
}

// anyPodWillDo plugs a volume from any pod that has it, not only the named one.
func anyPodWillDo(o *nodehotplug.Observed, d *nodehotplug.Decision) {
	if d.Action != nodehotplug.Rest || d.Phase != "" || len(o.Disks) > 0 || len(o.VMI.Spec.Volumes) == 0 {
		return
	}
	for _, p := range o.AttachmentPods {
		if p.Alive() {
			d.Action, d.Source = nodehotplug.Plug, p
		}
	}
}

// nobodyIsNamed removes the pod's name from the status of a Ready volume.
func nobodyIsNamed(_ *nodehotplug.Observed, d *nodehotplug.Decision) { d.PodName, d.PodUID = "", "" }

// theFirstStays never hands over.
func theFirstStays(o *nodehotplug.Observed) { o.Record.Pods = nil }

// virt-handler once plugged a lost volume again only from the named pod.
func waitForAName(o *nodehotplug.Observed, d *nodehotplug.Decision) {
	if len(o.VMI.Status.VolumeStatus) == 0 || len(o.Disks) > 0 {
		return
	}
	if named := o.VMI.Status.VolumeStatus[0].HotplugVolume.AttachPodUID; d.Source.UID != named {
		d.Action, d.Source = nodehotplug.Rest, hotplug.Pod{}
	}
}

// takeBack is virt-controller's old rule: a volume that was AttachedToNode through a pod that has died became Bound.
func takeBack(o hotplug.Observed) hotplug.Plan {
	entries := slices.Clone(o.Entries)
	for i := range entries {
		e := &entries[i]
		at := slices.IndexFunc(o.Pods, func(p hotplug.Pod) bool { return p.UID == e.PodUID })
		if e.Phase != v1.HotplugVolumeAttachedToNode || at >= 0 && !o.Pods[at].Terminating && !o.Pods[at].Finished || at < 0 && !o.Live {
			continue
		}
		*e = hotplug.Entry{Volume: e.Volume, Phase: v1.VolumeBound}
	}
	changed := !slices.Equal(entries, o.Entries)
	o.Entries = entries
	plan := hotplug.Decide(o)
	if changed && !plan.Changed {
		return hotplug.Plan{Changed: true, Entries: plan.Entries, Record: plan.Record}
	}
	return plan
}

// TestWhatVirtHandlerMustNotDoIsCaught replaces virt-handler's decision, and virt-controller's reaction, by old and
// possible errors. The exploration must catch each.
func TestWhatVirtHandlerMustNotDoIsCaught(t *testing.T) {
	beside := scenario{volumes: 2, first: volumeA, changes: 2, adds: all, removes: all, maxAttachmentPods: 1}
	taken := scenario{volumes: 1, changes: 3, adds: all, removes: all, deletions: 1, maxAttachmentPods: 1}
	apart := scenario{volumes: 2, first: volumeA | volumeB, firstApart: true, changes: 1, adds: all, removes: all, maxAttachmentPods: 1}
	late := apart
	late.writesLate = true
	tests := map[string]struct {
		handle func(nodehotplug.Observed) nodehotplug.Decision
		decide func(hotplug.Observed) hotplug.Plan
		sc     scenario
		want   string
	}{
		"it hands over to pods that the record does not name":     {decided(everyPodIsRecorded, nil), hotplug.Decide, apart, "H2"},
		"it hands over on one version what it decided on another": {theVolume, hotplug.Decide, late, "H2"},
		"it says that a volume is out before QEMU let go":         {decided(nil, outAsSoonAsUnwanted), hotplug.Decide, beside, "H1"},
		"it brings a volume in from a pod that nobody named":      {decided(nil, anyPodWillDo), hotplug.Decide, beside, "H1"},
		"it names no pod":     {decided(nil, nobodyIsNamed), hotplug.Decide, beside, "H2"},
		"it never hands over": {decided(theFirstStays, nil), hotplug.Decide, apart, "H4"},
		"as it was, it waits for a name for what the guest had":            {decided(nil, waitForAName), hotplug.Decide, taken, "H4"},
		"as it was, virt-controller takes back what virt-handler may have": {theVolume, takeBack, taken, "H1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.sc.decide, test.sc.handle = test.decide, test.handle
			expectViolation(t, &test.sc, test.want)
		})
	}
}

// expectViolation explores until an invariant is violated, which must be the wanted one.
func expectViolation(t *testing.T, sc *scenario, want string) {
	t.Helper()
	x, err := explore(sc)
	var broken *exploration.Violation
	if !errors.As(err, &broken) {
		t.Fatalf("it survives (%v): %d states, %d transitions", err, x.States(), x.Transitions)
	}
	t.Log(broken)
	if !strings.Contains(broken.Broken.Error(), want) {
		t.Errorf("it breaks %v, expected %s", broken.Broken, want)
	}
}
