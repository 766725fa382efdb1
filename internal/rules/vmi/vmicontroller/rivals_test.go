package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

// onClaim gives a VMI a disk on the claim data.
func onClaim(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}}}
}

func shareable(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true)
}

// launcher is another VMI's launcher pod with a node.
func launcher(of string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(bound, podPhase(corev1.PodRunning))
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.UID = of, "another"
	pod.Name, pod.UID, pod.OwnerReferences = launcherpod.Name(vmi), "p", nil
	pod.Labels[v1.CreatedByLabel] = "another"
	pod.Labels[launcherpod.NameLabel] = of
	pod.Annotations = map[string]string{v1.DomainAnnotation: of}
	for _, e := range edits {
		e(pod)
	}
	return pod
}

func writes(claim string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[launcherpod.ClaimLabel(claim)] = "" }
}

// aTarget makes a pod the target of a migration.
func aTarget(pod *corev1.Pod) { pod.Labels[v1.MigrationJobLabel] = "m" }

func TestBesideWhichPodsAGuestMustNotRun(t *testing.T) {
	plain, disk := newVMI(), newVMI(onClaim)
	tests := map[string]struct {
		vmi   *v1.VirtualMachineInstance
		pod   *corev1.Pod
		rival bool
		claim string
	}{
		"an earlier VMI's of the same name":           {plain, launcher("vmi"), true, ""},
		"one that has ended":                          {plain, launcher("vmi", podPhase(corev1.PodFailed)), false, ""},
		"one that is being deleted and has not ended": {plain, launcher("vmi", terminating), true, ""},
		"one without a node":                          {plain, launcher("vmi", func(p *corev1.Pod) { p.Spec.NodeName = "" }), false, ""},
		"an earlier VMI's that says another name":     {plain, launcher("vmi", func(p *corev1.Pod) { p.Labels[launcherpod.NameLabel] = "x" }), true, ""},
		"an earlier VMI's that has lost all labels but two": {plain, launcher("vmi", func(p *corev1.Pod) {
			p.Labels = map[string]string{v1.AppLabel: p.Labels[v1.AppLabel], v1.CreatedByLabel: "another"}
		}), true, ""},
		"another VM's that says its name":                       {plain, launcher("other", func(p *corev1.Pod) { p.Labels[launcherpod.NameLabel] = "vmi" }), false, ""},
		"its own":                                               {plain, newPod(bound), false, ""},
		"the pod that its guest migrates to":                    {disk, targetPod(writes("data")), false, ""},
		"that of an earlier VMI's guest":                        {plain, launcher("vmi", aTarget), true, ""},
		"that of another VM's guest, without disks in common":   {disk, launcher("other", aTarget, writes("x")), false, ""},
		"that of another VM's guest, which writes to its claim": {disk, launcher("other", aTarget, writes("data")), true, "data"},
		"another VM's, without disks in common":                 {disk, launcher("other", writes("x")), false, ""},
		"another VM's that writes to its claim":                 {disk, launcher("other", writes("data")), true, "data"},
		"another VM's that writes to a claim that it shares":    {newVMI(onClaim, shareable), launcher("other", writes("data")), false, ""},
		"a pod that has the labels and is no launcher pod":      {disk, launcher("vmi", func(p *corev1.Pod) { p.Labels[v1.AppLabel] = "web" }), false, ""},
		"a provisioning pod, which says nothing of its origin":  {disk, launcher("vmi", func(p *corev1.Pod) { delete(p.Labels, v1.CreatedByLabel) }), false, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, rival := RivalOf(test.vmi, test.pod)
			if rival != test.rival || r.Claim != test.claim {
				t.Errorf("a rival: %v, for claim %q; want %v, %q", rival, r.Claim, test.rival, test.claim)
			}
		})
	}
}

// TestAVMILeadsToItsGuestsPod: the pod's name, and the UID in the other VMI's status, must suffice.
func TestAVMILeadsToItsGuestsPod(t *testing.T) {
	readOnly := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{}}
	}
	bare := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := newPod(bound, podPhase(corev1.PodRunning))
		pod.Labels, pod.Annotations, pod.OwnerReferences = nil, nil, nil
		for _, e := range edits {
			e(pod)
		}
		return pod
	}
	running := func(edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		return newVMI(append([]func(*v1.VirtualMachineInstance){inPhase(v1.Running, 0), onClaim}, edits...)...)
	}
	for name, test := range map[string]struct {
		other *v1.VirtualMachineInstance
		pod   *corev1.Pod
		rival bool
	}{
		"its guest runs":                             {running(), bare(), true},
		"its disk may be shared":                     {running(shareable), bare(), true},
		"it only reads":                              {running(readOnly), bare(), false},
		"its pod has ended":                          {running(), bare(podPhase(corev1.PodFailed)), false},
		"its pod has no node":                        {running(), bare(func(p *corev1.Pod) { p.Spec.NodeName = "" }), false},
		"a pod of its name that is another":          {running(), bare(func(p *corev1.Pod) { p.UID = "x" }), false},
		"it starts":                                  {newVMI(inPhase(v1.Scheduling, 0), onClaim), newPod(bound), true},
		"a pod of its name that was not made for it": {newVMI(inPhase(v1.Scheduling, 0), onClaim), bare(), false},
	} {
		if r, is := HolderOf([]string{"a", "data"}, test.other, test.pod); is != test.rival || is && (r.Claim != "data" || r.VMI != "vmi") {
			t.Errorf("%s: a rival: %v, %+v", name, is, r)
		}
	}
	if _, is := HolderOf([]string{"a"}, running(), bare()); is {
		t.Error("a guest on another claim is a rival")
	}
}

func TestWhichLauncherPodsAreAbandoned(t *testing.T) {
	owned := func(uid types.UID) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachineInstance", Name: "vmi", UID: uid, Controller: new(true)}}
		}
	}
	tests := map[string]struct {
		pod      *corev1.Pod
		instance types.UID
		want     bool
	}{
		"its VMI is gone, and it has lost its owner":                     {launcher("vmi"), "", true},
		"its VMI has a successor, and it has lost its owner":             {launcher("vmi"), "uid", true},
		"it has another owner, which the garbage collector judges it by": {launcher("vmi", owned("x")), "", true},
		"its VMI is there": {launcher("vmi"), "another", false},
		"it names its VMI as its owner: the garbage collector's":      {launcher("vmi", owned("another")), "", false},
		"a guest was to migrate to it, and its VMI is gone":           {launcher("vmi", aTarget), "", true},
		"a guest is to migrate to it":                                 {targetPod(), "uid", false},
		"it is being deleted":                                         {launcher("vmi", terminating), "", false},
		"it is no launcher pod":                                       {launcher("vmi", func(p *corev1.Pod) { p.Labels[v1.AppLabel] = "web" }), "", false},
		"it is no launcher pod, and is owned by what it was made for": {launcher("vmi", owned("another"), func(p *corev1.Pod) { p.Labels[v1.AppLabel] = "web" }), "another", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Abandoned(test.pod, test.instance); got != test.want {
				t.Errorf("abandoned: %v, want %v", got, test.want)
			}
		})
	}
}

func TestAGuestWaitsForItsRivals(t *testing.T) {
	const (
		predecessor = "the launcher pod old of an earlier VMI vmi has not ended yet; this one starts when it has"
		inUse       = "the claim data is written to by the guest of VMI other (pod p); this one starts when that has ended, or together with it when the disk is shareable in both"
	)
	says := func(reason, message string) []string {
		return []string{"Synchronized=False " + reason + ": " + message, "Ready=False GuestNotRunning: " + message}
	}
	old := []Rival{{Pod: "old", VMI: "vmi", UID: "old"}}
	user := func(age time.Duration) []Rival {
		return []Rival{{Pod: "p", VMI: "other", Claim: "data", UID: "p", Created: now.Add(-age)}}
	}
	handing := func(rivals []Rival, asked bool) Observed {
		return Observed{VMI: newVMI(inPhase(v1.Scheduling, 0), onClaim), Pod: newPod(bound, made(time.Minute)), Rivals: rivals, RivalsAsked: asked, VMAsked: true}
	}
	unowned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	unlabeled := func(p *corev1.Pod) { p.Labels = nil }
	judge(t, map[string]testCase{
		"the guest of an earlier VMI runs: no pod is made": {
			Observed{VMI: newVMI(), RivalsAsked: true, Rivals: old},
			outcome{phase: v1.Pending, after: 10 * time.Second, says: says(ReasonPredecessorRuns, predecessor)}},
		"another VM's guest writes to its disk: no pod is made": {
			Observed{VMI: newVMI(), RivalsAsked: true, Rivals: user(0)},
			outcome{phase: v1.Pending, after: 10 * time.Second, says: says(ReasonClaimInUse, inUse)}},
		"a pod with a node and a disk of its own: the rivals are asked for once more": {
			handing(nil, false), outcome{phase: v1.Scheduling, askRivals: true}},
		"there are none: handed over": {
			handing(nil, true), outcome{phase: v1.Scheduled, says: []string{saysWaiting}}},
		"the other's pod is younger: it makes way": {
			handing(user(0), true), outcome{phase: v1.Scheduling, after: 10 * time.Second, says: says(ReasonClaimInUse, inUse)}},
		"the other's pod is older: this one makes way": {
			handing(user(time.Hour), true), outcome{phase: v1.Scheduling, after: 10 * time.Second, remove: true, says: says(ReasonClaimInUse, inUse)}},
		"of pods of the same second one makes way": {
			handing(user(time.Minute), true), outcome{phase: v1.Scheduling, after: 10 * time.Second, remove: true, says: says(ReasonClaimInUse, inUse)}},
		"a pod does not make way for itself": {
			handing([]Rival{{Pod: "p", VMI: "other", Claim: "data", UID: "pod-uid", Created: now.Add(-time.Minute)}}, true),
			outcome{phase: v1.Scheduling, after: 10 * time.Second, says: says(ReasonClaimInUse, inUse)}},
		"a pod that has made way has ended: the next one waits until it is gone": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0), onClaim), Pod: newPod(bound, terminating, podPhase(corev1.PodSucceeded))},
			outcome{phase: v1.Scheduling, says: []string{"Ready=False GuestNotRunning: waiting for the launcher pod pod to go before it is made again"}}},
		"a pod that has lost its owner before a guest could run in it is made again": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound, unowned)},
			outcome{phase: v1.Scheduling, remove: true, says: []string{"Ready=False GuestNotRunning: waiting for the launcher pod pod to go before it is made again"}}},
		"a pod that has only the name: it is neither used nor deleted": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound, unowned, unlabeled)},
			outcome{phase: v1.Scheduling, after: 10 * time.Second, says: says(ReasonPodNameTaken, "a pod pod exists that was not made for this VMI; delete it")}},
		"a pod that has only the name keeps no VMI from going": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0), deleted(0)), Pod: newPod(bound, unowned, unlabeled), PodAsked: true},
			outcome{phase: v1.Scheduling, freed: true}},
	})
}

func TestAGuestsPodStaysItsOwn(t *testing.T) {
	unowned := func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil }
	stolen := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "x", UID: "x", Controller: new(true)}}
	}
	runs := podPhase(corev1.PodRunning)
	judge(t, map[string]testCase{
		"deleted with its dependents orphaned: virt-handler ends the guest": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0), deleted(3*time.Second)), Pod: newPod(bound, runs, unowned)},
			outcome{phase: v1.Running, after: 7 * time.Second}},
		"deleted with its dependents orphaned: the pod is not left behind": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0), deleted(time.Minute)), Pod: newPod(bound, runs, unowned)},
			outcome{phase: v1.Running, remove: true}},
		"the pod has lost its owner: the guest runs on": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, runs, unowned)}, outcome{phase: v1.Running}},
		"the pod has another owner: the guest runs on": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound, runs, stolen)}, outcome{phase: v1.Running}},
		"the orphaned pod has ended: the VMI goes": {
			Observed{VMI: newVMI(inPhase(v1.Succeeded, 0), deleted(0)), Pod: newPod(bound, podPhase(corev1.PodSucceeded), unowned)},
			outcome{phase: v1.Succeeded, freed: true}},
	})
}

// TestAGuestGivesWayToWhatFillsItsClaim: a worker that fills a claim waits for the pods that use it, so a pod that does
// not run its guest yet must be deleted.
func TestAGuestGivesWayToWhatFillsItsClaim(t *testing.T) {
	const says = "the claim data awaits an upload"
	fills := []Rival{{Claim: "data", Filling: says}}
	vmi := newVMI(onClaim, inPhase(v1.Scheduling, 0))
	claims := []placement.Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		creates bool
		deletes bool
	}{
		"before it has a pod":     {nil, false, false},
		"when its pod has a node": {newPod(bound), false, true},
	} {
		p := Decide(Observed{VMI: vmi, Pod: test.pod, PodAsked: true, Claims: claims, ClaimsConfirmed: true, RivalsAsked: true, Rivals: fills, Now: now})
		c := condition.Find(p.VMI.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		if p.CreatePod != test.creates || p.DeletePod != test.deletes || p.VMI.Status.NodeName != "" || c == nil || c.Reason != ReasonClaimInUse || c.Message != says {
			t.Errorf("%s: it makes the pod %v, deletes it %v, and says %+v", name, p.CreatePod, p.DeletePod, c)
		}
	}
	shared := newVMI(onClaim, shareable, inPhase(v1.Scheduling, 0))
	if p := Decide(Observed{VMI: shared, Pod: newPod(bound), PodAsked: true, Claims: claims, ClaimsConfirmed: true, Now: now}); p.Needs != NeedRivals {
		t.Errorf("of a claim that guests share it asks for %q", p.Needs)
	}
}
