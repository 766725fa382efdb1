package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// says is Running's reason and message.
func dataVolume(name string, phase cdiv1.DataVolumePhase, says ...string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
	if len(says) == 2 {
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{
			Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: says[0], Message: says[1],
		}}
	}
	return dv
}

func claimOf(name string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Status.Phase = phase
	return claim
}

// disk is a claim of a DataVolume.
func disk(name string, bound corev1.PersistentVolumeClaimPhase, phase cdiv1.DataVolumePhase, says ...string) Claim {
	return Claim{Name: name, Claim: claimOf(name, bound), Source: name, DataVolume: dataVolume(name, phase, says...)}
}

// plain is a claim without a DataVolume.
func plain(name string, phase corev1.PersistentVolumeClaimPhase) Claim {
	return Claim{Name: name, Claim: claimOf(name, phase)}
}

func pod(phase corev1.PodPhase, age time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// scheduled is the pod with its node, or with the scheduler's verdict that no node fits.
func scheduled(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if node == "" {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return p
}

func terminating(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: now}
	return p
}

const (
	unbound = corev1.ClaimPending
	bound   = corev1.ClaimBound
)

func TestDecide(t *testing.T) {
	waiting := disk("a", unbound, cdiv1.WaitForFirstConsumer)
	apart := []Topology{{Claim: "a", Nodes: []string{"node-1"}}, {Claim: "b", Nodes: []string{"node-2"}}}
	const message = "finding a node on which the VM fits and these claims can be bound: a"
	tests := map[string]struct {
		o    Observed
		want Plan
	}{
		"a VM without claims": {
			Observed{Wanted: true}, Plan{State: Clear}},
		"a claim that does not exist": {
			Observed{Wanted: true, Claims: []Claim{{Name: "a"}, waiting}},
			Plan{State: Missing, Message: "these claims do not exist: a"}},
		"claims that nothing fills are the launcher pod's to bind, once they are asked for": {
			Observed{Wanted: true, Claims: []Claim{plain("a", unbound), plain("b", bound)}},
			Plan{State: Clear, Confirm: true}},
		"and so they are": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{plain("a", unbound), plain("b", bound)}},
			Plan{State: Clear}},
		"a claim that awaits an upload": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{plain("a", bound), uploaded("b", bound, "")}},
			Plan{State: Filling, Message: "the claim b awaits an upload: upload its disk, or take away its annotation cdi.kubevirt.io/storage.upload.target to use it as it is"}},
		"one that is to be bound before": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{uploaded("a", unbound, "")}},
			Plan{State: Provisioning, Message: message, Create: true}},
		"one that has been uploaded to": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{uploaded("b", bound, corev1.PodSucceeded)}},
			Plan{State: Clear}},
		"a DataVolume that has no claim yet": {
			Observed{Wanted: true, Claims: []Claim{{Name: "b", Source: "b", DataVolume: dataVolume("b", cdiv1.Pending)}, waiting}},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: b, a"}},
		"a DataVolume that waits while another is not decided: the picture is not whole": {
			Observed{Wanted: true, Claims: []Claim{waiting, disk("b", unbound, cdiv1.Pending)}},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a, b"}},
		"a DataVolume that waits is confirmed before anything is done": {
			Observed{Wanted: true, Claims: []Claim{waiting}},
			Plan{State: Provisioning, Message: message, Confirm: true}},
		"a DataVolume that waits": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{waiting}},
			Plan{State: Provisioning, Message: message, Create: true}},
		"one that CDI populates waits under another name": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{disk("a", unbound, cdiv1.PendingPopulation)}},
			Plan{State: Provisioning, Message: message, Create: true}},
		"a bound claim and one that waits": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{waiting, disk("b", bound, cdiv1.Succeeded), plain("c", bound)}},
			Plan{State: Provisioning, Message: message, Create: true}},
		"the pod is there: nothing but to wait": {
			Observed{Wanted: true, Claims: []Claim{waiting}, Pod: pod(corev1.PodPending, time.Second)},
			Plan{State: Provisioning, Message: message}},
		"the first DataVolume goes on before the others are bound: the pod stays": {
			Observed{Wanted: true, Claims: []Claim{disk("b", bound, cdiv1.ImportScheduled), plain("a", unbound)}, Pod: pod(corev1.PodPending, 0)},
			Plan{State: Provisioning, Message: message}},
		"every claim is bound, and the scheduler gives the pod its node next": {
			Observed{Wanted: true, Claims: []Claim{disk("a", bound, cdiv1.WaitForFirstConsumer)}, Pod: pod(corev1.PodPending, time.Second)},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a"}},
		"the pod has its node: it goes before anything is filled": {
			Observed{Wanted: true, Claims: []Claim{disk("a", bound, cdiv1.WaitForFirstConsumer)}, Pod: scheduled(pod(corev1.PodPending, time.Second), "n")},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a", Delete: true}},
		"every claim is bound, and the scheduler has found no node for the pod": {
			Observed{Wanted: true, Claims: []Claim{disk("a", bound, cdiv1.WaitForFirstConsumer)}, Pod: scheduled(pod(corev1.PodPending, time.Second), "")},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a", Delete: true}},
		"every claim is bound, and the pod is being deleted": {
			Observed{Wanted: true, Claims: []Claim{disk("a", bound, cdiv1.WaitForFirstConsumer)}, Pod: terminating(pod(corev1.PodPending, time.Second))},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a", Delete: true}},
		"everything is filled before the pod has its node": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{disk("a", bound, cdiv1.Succeeded)}, Pod: pod(corev1.PodPending, time.Second)},
			Plan{State: Clear, Delete: true}},
		"CDI binds a claim when it is filled, and goes on before: the pod goes": {
			Observed{Wanted: true, Claims: []Claim{disk("a", unbound, cdiv1.ImportScheduled)}, Pod: pod(corev1.PodPending, time.Second)},
			Plan{State: Filling, Message: "waiting for DataVolumes to be filled: a", Delete: true}},
		"a pod that was evicted is made again, not at once": {
			Observed{Wanted: true, Claims: []Claim{waiting}, Pod: pod(corev1.PodFailed, 5*time.Second)},
			Plan{State: Provisioning, Message: message, After: 10 * time.Second}},
		"a pod that was evicted just long enough ago goes": {
			Observed{Wanted: true, Claims: []Claim{waiting}, Pod: pod(corev1.PodFailed, 15*time.Second)},
			Plan{State: Provisioning, Message: message, Delete: true}},
		"a pod that was evicted goes first": {
			Observed{Wanted: true, Claims: []Claim{waiting}, Pod: pod(corev1.PodFailed, time.Minute)},
			Plan{State: Provisioning, Message: message, Delete: true}},
		"a pod whose deletion was cut off is deleted again": {
			Observed{Wanted: true, Claims: []Claim{waiting}, Pod: terminating(pod(corev1.PodRunning, time.Minute))},
			Plan{State: Provisioning, Message: message, Delete: true}},
		"the VMI is not wanted any more": {
			Observed{Claims: []Claim{waiting}, Pod: pod(corev1.PodPending, 0)},
			Plan{State: Unwanted, Delete: true}},
		"the VMI is not wanted any more and its pod is going": {
			Observed{Pod: terminating(pod(corev1.PodRunning, 0))},
			Plan{State: Unwanted, Delete: true}},
		"a DataVolume has failed: there is nothing to provision for": {
			Observed{Wanted: true, Claims: []Claim{waiting, disk("b", bound, cdiv1.Failed, "NotAnImage", "this is no image")}, Pod: pod(corev1.PodPending, 0)},
			Plan{State: Filling, Delete: true,
				Message: "DataVolume b has failed: this is no image; waiting for DataVolumes to be filled: a"}},
		"a DataVolume was deleted, its claim is still there": {
			Observed{Wanted: true, Claims: []Claim{{Name: "a", Claim: claimOf("a", bound), Source: "a"}}},
			Plan{State: Filling, Message: "DataVolume a, which fills claim a, does not exist"}},
		"a worker that is in trouble does not stop the others": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{waiting, disk("b", bound, cdiv1.ImportInProgress, "Error", "404 Not Found")}},
			Plan{State: Provisioning, Message: message, Create: true}},
		"everything is filled": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{disk("a", bound, cdiv1.Succeeded)}},
			Plan{State: Clear}},
		"everything is filled and the pod is still there": {
			Observed{Wanted: true, Confirmed: true, Claims: []Claim{disk("a", bound, cdiv1.Succeeded)}, Pod: pod(corev1.PodRunning, 0)},
			Plan{State: Clear, Delete: true}},
		"filled claims on nodes without one in common": {
			Observed{Wanted: true, Confirmed: true, Topologies: apart, Claims: []Claim{disk("a", bound, cdiv1.Succeeded), plain("b", bound)}},
			Plan{State: Divided, Message: "no node has all of the VM's disks: claim a is on node node-1, claim b is on node node-2", After: 30 * time.Second}},
		"bound claims on nodes without one in common, before a pod is made for a third": {
			Observed{Wanted: true, Confirmed: true, Topologies: apart, Claims: []Claim{plain("a", bound), plain("b", bound), disk("c", unbound, cdiv1.WaitForFirstConsumer)}},
			Plan{State: Divided, Message: "no node has all of the VM's disks: claim a is on node node-1, claim b is on node node-2", After: 30 * time.Second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Now = now
			if diff := cmp.Diff(test.want, Decide(test.o)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// uploaded is a claim without a DataVolume that takes an upload, whose worker was last in a phase.
func uploaded(name string, phase corev1.PersistentVolumeClaimPhase, worker corev1.PodPhase) Claim {
	c := plain(name, phase)
	c.Claim.Annotations = map[string]string{layout.AnnUploadTarget: "", layout.AnnPodPhase: string(worker)}
	return c
}

func TestSource(t *testing.T) {
	owned := claimOf("disk", bound)
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "maker", Controller: new(true)}}
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		named bool
		want  string
	}{
		"a claim that a DataVolume owns":                 {owned, false, "maker"},
		"a claim that nobody owns":                       {claimOf("disk", bound), false, ""},
		"a claim that its DataVolume has left":           {claimOf("disk", bound), true, ""},
		"no claim, of a DataVolume":                      {nil, true, "disk"},
		"no claim, of a volume that names no DataVolume": {nil, false, ""},
		"a claim that a DataVolume of another name owns": {owned, true, "maker"},
		"a claim whose owner is no DataVolume is as it is": {func() *corev1.PersistentVolumeClaim {
			c := owned.DeepCopy()
			c.OwnerReferences[0].Kind = "Job"
			return c
		}(), false, ""},
	} {
		if got := Source(c.claim, c.named, "disk"); got != c.want {
			t.Errorf("%s: filled by %q, want %q", name, got, c.want)
		}
	}
	if volumes := []v1.Volume{{VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "disk"}}}}; !NamesDataVolume(volumes, "disk") || NamesDataVolume(volumes, "other") {
		t.Error("the volumes name the DataVolume disk and no other")
	}
}

func TestTrouble(t *testing.T) {
	quota := dataVolume("a", cdiv1.Pending)
	quota.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeBound, Reason: "ErrExceededQuota", Message: "exceeded quota"}}
	for name, c := range map[string]struct {
		dv      *cdiv1.DataVolume
		want    string
		serious bool
	}{
		"in progress":                 {dataVolume("a", cdiv1.ImportInProgress), "", false},
		"the worker starts":           {dataVolume("a", cdiv1.ImportScheduled, "ContainerCreating", "starting"), "", false},
		"the worker is tried again":   {dataVolume("a", cdiv1.ImportInProgress, "Error", "404 Not Found"), "DataVolume a: 404 Not Found", true},
		"the source is in use":        {dataVolume("a", cdiv1.Pending, "CloneSourceInUse", "pod p uses it"), "DataVolume a: pod p uses it", false},
		"the worker finds no room":    {dataVolume("a", cdiv1.ImportScheduled, "Unschedulable", "0/2 nodes"), "DataVolume a: 0/2 nodes", false},
		"failed":                      {dataVolume("a", cdiv1.Failed, "TooLarge", "2 GiB do not fit"), "DataVolume a has failed: 2 GiB do not fit", true},
		"failed without a word":       {dataVolume("a", cdiv1.Failed), "DataVolume a has failed", true},
		"no claim, for a quota":       {quota, "DataVolume a gets no claim: exceeded quota", true},
		"what was said before it was": {dataVolume("a", cdiv1.Succeeded, "Error", "404 Not Found"), "", false},
	} {
		if got, serious := Trouble(c.dv); got != c.want || serious != c.serious {
			t.Errorf("%s: %q, serious %v, want %q, %v", name, got, serious, c.want, c.serious)
		}
	}
}

func TestWhichClaimsDataVolumesFill(t *testing.T) {
	for name, c := range map[string]struct {
		claims []Claim
		want   bool
	}{
		"a VM without claims":        {nil, false},
		"claims that nothing fills":  {[]Claim{plain("a", bound), plain("b", unbound)}, false},
		"one of two is filled":       {[]Claim{plain("a", bound), disk("b", unbound, cdiv1.Pending)}, true},
		"one that is not there yet":  {[]Claim{{Name: "a", Source: "a"}}, true},
		"one that is filled already": {[]Claim{disk("a", bound, cdiv1.Succeeded)}, true},
	} {
		if got := FilledByDataVolumes(c.claims); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The creator of a VM asks how far a DataVolume is: whether its claim is being bound, and whether it is filled or waits
// for the VM.
func TestHowFarADataVolumeIs(t *testing.T) {
	condition := func(kind cdiv1.DataVolumeConditionType, status corev1.ConditionStatus) []cdiv1.DataVolumeCondition {
		return []cdiv1.DataVolumeCondition{{Type: kind, Status: status}}
	}
	unboundYet := condition(cdiv1.DataVolumeBound, corev1.ConditionFalse)
	for name, c := range map[string]struct {
		phase          cdiv1.DataVolumePhase
		claim          string
		conditions     []cdiv1.DataVolumeCondition
		binding, ready bool
	}{
		"its claim is being bound":                       {cdiv1.Pending, "disk", unboundYet, true, false},
		"its claim is bound":                             {cdiv1.Pending, "disk", condition(cdiv1.DataVolumeBound, corev1.ConditionTrue), false, false},
		"nothing is said of its claim":                   {cdiv1.Pending, "disk", nil, false, false},
		"only another condition is known":                {cdiv1.Pending, "disk", condition(cdiv1.DataVolumeRunning, corev1.ConditionFalse), false, false},
		"it has no claim yet":                            {cdiv1.Pending, "", unboundYet, false, false},
		"it has no claim yet, and nothing is said of it": {cdiv1.Pending, "", nil, false, false},
		"it is in another phase":                         {cdiv1.ImportScheduled, "disk", unboundYet, false, false},
		"it is in another phase and says nothing":        {cdiv1.ImportScheduled, "disk", nil, false, false},
		"it waits for the VM":                            {cdiv1.WaitForFirstConsumer, "disk", unboundYet, false, true},
		"it waits for the VM, as CDI's populators do":    {cdiv1.PendingPopulation, "disk", unboundYet, false, true},
		"it is filled":                                   {cdiv1.Succeeded, "disk", nil, false, true},
		"it has failed":                                  {cdiv1.Failed, "disk", nil, false, false},
	} {
		dv := &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: c.phase, ClaimName: c.claim, Conditions: c.conditions}}
		if got := Binding(dv); got != c.binding {
			t.Errorf("%s: being bound is %v", name, got)
		}
		if got := Ready(dv); got != c.ready {
			t.Errorf("%s: ready is %v", name, got)
		}
	}
}
