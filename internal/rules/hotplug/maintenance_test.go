package hotplug

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const inMaintenance = "PVC a is used by the maintenance pod fix of vm; the volume is attached when that has ended"

func TestAVolumeWaitsForMaintenance(t *testing.T) {
	fix := map[string]Maintainer{"a": {Pod: "fix", Of: "vm"}}
	fills := map[string]Maintainer{"a": {Filling: "the claim a awaits an upload"}}
	const toBeFilled = "the claim a awaits an upload; the volume is attached when it is filled"
	waits := Entry{Volume: vol("a")[0], Phase: v1.VolumePending, Reason: ReasonClaimInUse, Message: inMaintenance}
	bound := through(0, v1.VolumeBound, "a")
	for name, test := range map[string]struct {
		o     Observed
		needs Question
		want  string
		says  string
	}{
		"before anything is recorded it is asked": {Observed{Wanted: want("a")}, NeedMaintainers, "ask", ""},
		"nobody has the claim":                    {Observed{Wanted: want("a"), MaintainersAsked: true}, "", "a=a Bound; hp-1{a}", ""},
		"somebody has it":                         {Observed{Wanted: want("a"), MaintainersAsked: true, Maintainers: fix}, "", "a=a Pending", inMaintenance},
		"another volume goes ahead":               {Observed{Wanted: want("a", "b"), MaintainersAsked: true, Maintainers: fix}, "", "a=a Pending; b=b Bound; hp-1{b}", inMaintenance},
		"something fills the claim":               {Observed{Wanted: want("a"), MaintainersAsked: true, Maintainers: fills}, "", "a=a Pending", toBeFilled},
		"its pod runs, and something fills it":    {plugging(bound, fills), "", "a=a Pending; hp-1{a}", toBeFilled},
		"its pod binds the claim that is to be filled": {Observed{Wanted: []Wanted{{Volume: vol("a")[0], Attach: true, Alone: true, Empty: true, Reason: "r"}}, MaintainersAsked: true,
			Maintainers: fills}, "", "a=a Pending; hp-1{a}", ""},
		"it waits still":                             {Observed{Wanted: want("a"), Entries: []Entry{waits}, MaintainersAsked: true, Maintainers: fix}, "", "a=a Pending", inMaintenance},
		"it waits no more":                           {Observed{Wanted: want("a"), Entries: []Entry{waits}, MaintainersAsked: true}, "", "a=a Bound; hp-1{a}", ""},
		"its pod runs: it is asked again":            {plugging(bound), NeedMaintainers, "a=a Bound; hp-1{a}; ask", ""},
		"and nobody has it":                          {plugging(bound, nil), "", "a=a AttachedToNode hp-1; hp-1{a}", ""},
		"and somebody has it: it keeps its turn":     {plugging(bound, fix), "", "a=a Pending; hp-1{a}", inMaintenance},
		"what is handed over is not asked for again": {plugging(through(1, v1.HotplugVolumeAttachedToNode, "a")), "", "a=a AttachedToNode hp-1; hp-1{a}", ""},
		"nor what the guest has":                     {plugging(through(1, v1.VolumeReady, "a")), "", "a=a Ready hp-1; hp-1{a}", ""},
		"nor what waits for its claim":               {Observed{Wanted: []Wanted{{Volume: vol("a")[0], Reason: "r"}}}, "", "a=a Pending", ""},
		"nor when the guest ends":                    {Observed{Stage: Ending, Wanted: want("a")}, "", "a=a Bound", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Prefix, test.o.MaxAttachmentPods, test.o.Budget = "hp", 4, Budget{State: BudgetRight}
			plan := Decide(test.o)
			if got := told(plan); got != test.want || plan.Needs != test.needs {
				t.Errorf("%s, and needs %q; want %s, %q", got, plan.Needs, test.want, test.needs)
			}
			if len(plan.Entries) > 0 && plan.Entries[0].Message != test.says {
				t.Errorf("it says %q, want %q", plan.Entries[0].Message, test.says)
			}
		})
	}
}

// plugging is a VMI whose volume has a running attachment pod, with the answer about maintenance, if it was asked for.
func plugging(e Entry, answer ...map[string]Maintainer) Observed {
	o := Observed{Wanted: want("a"), Entries: []Entry{e}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}, Pods: []Pod{runs(1, "a")}}
	if e.PodUID != "" {
		o.Record.Pods[0] = noted(o.Record.Pods[0])
	}
	for _, found := range answer {
		o.MaintainersAsked, o.Maintainers = true, found
	}
	return o
}

// TestADiskIsNotCopiedToAClaimInMaintenance: the pod at the target must not be recorded, so that nothing is copied.
func TestADiskIsNotCopiedToAClaimInMaintenance(t *testing.T) {
	for name, test := range map[string]struct {
		asked bool
		found map[string]Maintainer
		needs Question
		noted bool
	}{
		"it is asked":     {false, nil, NeedMaintainers, false},
		"nobody has it":   {true, nil, "", true},
		"somebody has it": {true, map[string]Maintainer{"x": {Pod: "fix", Of: "vm"}}, "", false},
		"the old claim":   {true, map[string]Maintainer{"a": {Pod: "fix", Of: "vm"}}, "", true},
	} {
		plan := Decide(Observed{
			Prefix: "hp", Stage: Moving, Move: Move{Migration: "m", UnderWay: true}, Entries: []Entry{through(1, v1.VolumeReady, "a")},
			Destinations: []Destination{{From: vol("a")[0], To: vol("a=x")[0]}}, MaintainersAsked: test.asked, Maintainers: test.found,
			Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a"))}, Incoming: &Incoming{Migration: "m", Pods: []AttachmentPod{held(2, "a=x")}}},
			Pods:   []Pod{runs(1, "a"), runs(2, "a=x")},
		})
		if got := plan.Record.Incoming.Pods[0].UID != ""; got != test.noted || plan.Needs != test.needs {
			t.Errorf("%s: noted %v, needs %q", name, got, plan.Needs)
		}
	}
}

func TestWhatIsPluggedIntoAGuest(t *testing.T) {
	recorded := Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}
	coming := Record{Generation: 1, Incoming: &Incoming{Migration: "m", Pods: []AttachmentPod{held(1, "v=a")}}}
	for name, test := range map[string]struct {
		phase  v1.VirtualMachineInstancePhase
		record string
		entry  Entry
		want   string
	}{
		"nothing":                            {v1.Running, "", through(0, v1.VolumeBound, "a"), ""},
		"an attachment pod is recorded":      {v1.Scheduled, recorded.Text(), Entry{}, "a"},
		"one at the target of a migration":   {v1.Running, coming.Text(), Entry{}, "a"},
		"it is handed to virt-handler":       {v1.Running, "", through(1, v1.HotplugVolumeAttachedToNode, "a"), "a"},
		"the guest has it":                   {v1.Running, "", through(1, v1.VolumeReady, "v=a"), "a"},
		"the guest does not let go of it":    {v1.Running, "", through(1, v1.HotplugVolumeDetaching, "a"), "a"},
		"the guest has let go of it":         {v1.Running, "", through(1, v1.HotplugVolumeUnMounted, "a"), ""},
		"another claim":                      {v1.Running, "", through(1, v1.VolumeReady, "a=x"), ""},
		"the record can't be read":           {v1.Running, "{", through(1, v1.VolumeReady, "a"), "a"},
		"the guest is not handed over":       {v1.Scheduling, recorded.Text(), through(1, v1.VolumeReady, "a"), ""},
		"the guest has ended":                {v1.Failed, recorded.Text(), through(1, v1.VolumeReady, "a"), ""},
		"it is not known where the guest is": {v1.Unknown, recorded.Text(), Entry{}, "a"},
	} {
		vmi := migrating(Record{}, nil)
		vmi.Status.Phase, vmi.Annotations = test.phase, map[string]string{}
		if test.record != "" {
			vmi.Annotations[RecordAnnotation] = test.record
		}
		if e := test.entry; e.Name != "" {
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: e.Name, Phase: e.Phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: e.PodUID},
				PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: e.Claim}}}
		}
		if got := Plugged(vmi, []string{"other", "a"}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWhichPodsLetTheirClaimBeFilledFirst(t *testing.T) {
	onClaim := func(claim string) v1.Volume {
		return v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}}}
	}
	plugged := func(phase v1.VolumePhase) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes = []v1.Volume{onClaim("a")}
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "disk", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{},
				PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"}}}
		}
	}
	copied := func(volume string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes = []v1.Volume{onClaim(volume)}
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "disk", DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"}}}
		}
	}
	for name, test := range map[string]struct {
		made string
		edit func(*v1.VirtualMachineInstance)
		want bool
	}{
		"a volume that waits to be plugged":   {"uid", plugged(v1.VolumePending), true},
		"another VMI's pod":                   {"other", plugged(v1.VolumePending), false},
		"a volume that is bound":              {"uid", plugged(v1.VolumeBound), false},
		"one that is handed over":             {"uid", plugged(v1.HotplugVolumeAttachedToNode), false},
		"one that the guest has":              {"uid", plugged(v1.VolumeReady), false},
		"a disk that is to be copied there":   {"uid", copied("b"), true},
		"one that the guest writes to by now": {"uid", copied("a"), false},
		"a disk of the guest's":               {"uid", func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes = []v1.Volume{onClaim("a")} }, false},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vmi", UID: "uid"}}
		test.edit(vmi)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.CreatedByLabel: test.made}}}
		if got := AwaitsFilling(vmi, pod, "a"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for app, want := range map[string]string{layout.LauncherApp: "vmi", layout.AttachmentApp: "vmi", "web": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.AppLabel: app}, Annotations: map[string]string{v1.DomainAnnotation: "vmi"}}}
		if got := GuestOf(pod); got != want {
			t.Errorf("a pod of %s is of %q", app, got)
		}
	}
}
