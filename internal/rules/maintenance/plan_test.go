package maintenance

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

var now = time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)

type podChange func(*corev1.Pod)

func newPod(name string, changes ...podChange) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(now),
			Labels: map[string]string{v1.AppLabel: layout.MaintenanceApp, layout.MaintenanceForLabel: "vm"}, Finalizers: []string{layout.MaintenanceFinalizer}},
		Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func lifted(p *corev1.Pod)   { lock.Ungate(p) }
func bound(p *corev1.Pod)    { p.Spec.NodeName = "node" }
func deleted(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: now} }
func finished(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
func vouched(p *corev1.Pod)  { lock.LetGo(p) }
func older(p *corev1.Pod)    { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Second)) }

type vmChange func(*v1.VirtualMachine)

func newVM(changes ...vmChange) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "vm-uid"},
		Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
	for _, change := range changes {
		change(vm)
	}
	return vm
}

func held(vm *v1.VirtualMachine)  { lock.Take(vm, newPod("a"), now) }
func open(vm *v1.VirtualMachine)  { lock.Open(vm) }
func going(vm *v1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{Time: now} }
func forced(uid string) vmChange {
	return func(vm *v1.VirtualMachine) {
		vm.Annotations = map[string]string{layout.MaintenanceUIDAnnotation: vm.Annotations[layout.MaintenanceUIDAnnotation],
			layout.MaintenanceOpenAnnotation: vm.Annotations[layout.MaintenanceOpenAnnotation], layout.MaintenanceReleaseAnnotation: uid, layout.MaintenanceReleaseByAnnotation: "root"}
	}
}

func pods(list ...*corev1.Pod) []*corev1.Pod { return list }

func TestTheNextStep(t *testing.T) {
	unsure, free := &Look{}, &Look{PluggedAsked: true}
	taken := &Look{VMI: &v1.VirtualMachineInstance{}}
	holding := func(p *corev1.Pod, look *Look, changes ...vmChange) Observed {
		return Observed{Machine: newVM(append([]vmChange{held}, changes...)...), Pods: pods(newPod("b")), Holder: p, HolderAsked: true, Look: look}
	}
	for name, c := range map[string]struct {
		o     Observed
		needs Question
		step  Step
		pod   string
		event string
		waits int
	}{
		"nothing waits":             {Observed{Machine: newVM()}, "", Rest, "", "", 0},
		"a pod waits: it is looked": {Observed{Machine: newVM(), Pods: pods(newPod("a"))}, NeedLook, Rest, "", "", 0},
		"nothing is seen in the way: it is asked for plugs": {Observed{Machine: newVM(), Pods: pods(newPod("a")), Look: unsure}, NeedPlugged, Rest, "", "", 0},
		"nothing is in the way":                             {Observed{Machine: newVM(), Pods: pods(newPod("a")), Look: free}, "", Lock, "a", "", 0},
		"something is":                                      {Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("b")), Look: taken}, "", Rest, "", "", 2},
		"the older one is first":                            {Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("b", older)), Look: free}, "", Lock, "b", "", 0},
		"of the same second the lesser UID is":              {Observed{Machine: newVM(), Pods: pods(newPod("b"), newPod("a")), Look: free}, "", Lock, "a", "", 0},
		"a pod without a gate waits for nothing":            {Observed{Machine: newVM(), Pods: pods(newPod("a", lifted, vouched))}, "", Rest, "", "", 0},
		"a pod that was vouched for has no turn":            {Observed{Machine: newVM(), Pods: pods(newPod("a", vouched))}, "", Rest, "", "", 0},
		"one that is being deleted is not locked":           {Observed{Machine: newVM(), Pods: pods(newPod("a", deleted))}, NeedLater, Rest, "", "", 0},
		"it is let go":                                      {Observed{Machine: newVM(), Pods: pods(newPod("a", deleted)), LaterAsked: true}, "", LetGo, "a", "", 0},
		"unless the VM was locked for it meanwhile":         {Observed{Machine: newVM(), Pods: pods(newPod("a", deleted)), LaterAsked: true, Later: newVM(held)}, "", Rest, "", "", 0},
		"the VM is being deleted: nothing is begun":         {Observed{Machine: newVM(going), Pods: pods(newPod("a"))}, "", Rest, "", "", 0},
		"the VM is gone: what waits is deleted":             {Observed{Pods: pods(newPod("a"))}, "", Delete, "a", "", 0},
		"what has ended is let go":                          {Observed{Pods: pods(newPod("a", bound, lifted, finished)), LaterAsked: true}, "", LetGo, "a", "", 0},
		"another one that had the lock runs":                {Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("z", lifted, bound)), Look: free}, "", Rest, "", "", 1},
		"it was vouched for":                                {Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("z", lifted, bound, vouched)), Look: free}, "", Lock, "a", "", 0},
		"somebody took the label away":                      {Observed{Machine: newVM(held, func(vm *v1.VirtualMachine) { vm.Labels = nil })}, "", Forget, "", "", 0},
		"a request for nothing":                             {Observed{Machine: newVM(forced("x"))}, "", Forget, "", "", 0},

		"the holder is asked for":                      {Observed{Machine: newVM(held)}, NeedHolder, Rest, "", "", 0},
		"locked: it is looked again":                   {holding(newPod("a"), nil), NeedLook, Rest, "", "", 0},
		"locked, and nothing is seen: asked for plugs": {holding(newPod("a"), unsure), NeedPlugged, Rest, "", "", 0},
		"locked, and nothing is there: it is opened":   {holding(newPod("a"), free), "", Open, "a", "MaintenanceStarted", 0},
		"locked, and something is there: it yields":    {holding(newPod("a"), taken), "", Unlock, "", "", 0},
		"open: the gate comes off, whatever is there":  {holding(newPod("a"), nil, open), "", Lift, "a", "", 0},
		"it runs":                                {holding(newPod("a", lifted, bound), nil, open), "", Rest, "", "", 1},
		"its deletion is not its end":            {holding(newPod("a", lifted, bound, deleted), nil, open), "", Rest, "", "", 1},
		"its end is":                             {holding(newPod("a", lifted, bound, deleted, finished), nil, open), "", Unlock, "a", "MaintenanceEnded", 0},
		"it was deleted before it had a node":    {holding(newPod("a", lifted, deleted), nil, open), "", Unlock, "a", "MaintenanceEnded", 0},
		"it is gone before it could run":         {holding(nil, nil), "", Unlock, "", "", 0},
		"it is gone, and could run":              {holding(nil, nil, open), "", Rest, "", "MaintenancePodLost", 1},
		"another has its name":                   {holding(newPod("a", func(p *corev1.Pod) { p.UID = "other" }), nil, open), "", Rest, "", "MaintenancePodLost", 1},
		"the VM is deleted: so is the holder":    {holding(newPod("a", lifted, bound), nil, open, going), "", Delete, "a", "", 0},
		"it is being deleted already":            {holding(newPod("a", lifted, bound, deleted), nil, open, going), "", Rest, "", "", 1},
		"the VM is deleted before it was opened": {holding(newPod("a"), free, going), "", Unlock, "", "", 0},
		"by force: the pod goes first":           {holding(newPod("a", lifted, bound), nil, open, forced("a-uid")), "", Evict, "a", "", 0},
		"by force: then the lock":                {holding(nil, nil, open, forced("a-uid")), "", Unlock, "", "MaintenanceForced", 0},
		"by force, and the pod's object stays":   {holding(newPod("a", lifted, bound, deleted, vouched), nil, open, forced("a-uid")), "", Unlock, "", "MaintenanceForced", 0},
		"by force, another pod":                  {holding(newPod("a", lifted, bound), nil, open, forced("b-uid")), "", Rest, "", "", 1},
	} {
		c.o.Now = now
		p := Decide(c.o)
		pod, event := "", ""
		if p.Pod != nil {
			pod = p.Pod.Name
		}
		if p.Event != nil {
			event = p.Event.Reason
		}
		if p.Needs != c.needs || p.Step != c.step || pod != c.pod || event != c.event || len(p.Waits) != c.waits {
			t.Errorf("%s: needs %q, step %q of pod %q, event %q, %d wait; want %q, %q of %q, %q, %d",
				name, p.Needs, p.Step, pod, event, len(p.Waits), c.needs, c.step, c.pod, c.event, c.waits)
		}
	}
}

func TestALockIsWhole(t *testing.T) {
	vm := Decide(Observed{Machine: newVM(), Pods: pods(newPod("a")), Look: &Look{PluggedAsked: true}, Now: now}).Machine
	l, locked := lock.Of(vm)
	if want := (lock.Lock{Pod: "a", UID: "a-uid", Since: "2026-11-24T01:02:03Z"}); !locked || l != want || len(vm.GetFinalizers()) != 1 {
		t.Fatalf("the lock is %+v, finalizers %v", l, vm.GetFinalizers())
	}
	if lock.HeldBy(vm, newPod("a", func(p *corev1.Pod) { p.Namespace = "other" })) {
		t.Error("a pod of another namespace is the holder")
	}
	if lock.HeldBy(vm, newPod("a", func(p *corev1.Pod) { p.Labels[layout.MaintenanceForLabel] = "another" })) {
		t.Error("a pod for another VM is the holder, because this one names it")
	}
	vm = Decide(Observed{Machine: vm, Holder: newPod("a"), HolderAsked: true, Look: &Look{PluggedAsked: true}, Now: now}).Machine
	if l, _ := lock.Of(vm); !l.Open {
		t.Errorf("the lock is not open: %+v", l)
	}
	vm = Decide(Observed{Machine: vm, Holder: newPod("a", finished), HolderAsked: true, Now: now}).Machine
	if _, locked := lock.Of(vm); locked || len(vm.GetFinalizers())+len(vm.GetAnnotations())+len(vm.GetLabels()) != 0 {
		t.Errorf("something is left: %+v", vm)
	}
}

func TestPodsAreToldWhyTheyWait(t *testing.T) {
	p := Decide(Observed{Machine: newVM(held, open), Pods: pods(newPod("c"), newPod("b", older)), Holder: newPod("a", lifted, bound), HolderAsked: true})
	if len(p.Waits) != 2 || p.Waits[0].Pod.Name != "b" || p.Waits[0].Why != "the VM is locked for the pod a" || !p.Waits[0].First ||
		p.Waits[1].Why != "pods that were created earlier come first" || p.Waits[1].First {
		t.Errorf("they are told %+v", p.Waits)
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	cut := "cut"
	for name, c := range map[string]struct {
		vm   *v1.VirtualMachine
		look Look
		want string
	}{
		"nothing":          {newVM(), Look{}, ""},
		"the VM is to run": {newVM(func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = new(v1.RunStrategyAlways) }), Look{}, "the VM's run strategy is Always; stop it, or set its run strategy to Halted"},
		"no strategy":      {newVM(func(vm *v1.VirtualMachine) { vm.Spec.Running = new(true) }), Look{}, "it can't be told whether the VM runs: running and runstrategy are mutually exclusive"},
		"it was asked to": {newVM(func(vm *v1.VirtualMachine) {
			vm.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
		}), Look{}, "the VM was asked to start"},
		"it was asked to stop": {newVM(func(vm *v1.VirtualMachine) {
			vm.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StopRequest}}
		}), Look{}, ""},
		"a snapshot":        {newVM(func(vm *v1.VirtualMachine) { vm.Status.SnapshotInProgress = &cut }), Look{}, "the VM's disks are being snapshotted by the VirtualMachineSnapshot cut"},
		"a restore":         {newVM(func(vm *v1.VirtualMachine) { vm.Status.RestoreInProgress = &cut }), Look{}, "the VM is being restored by the VirtualMachineRestore cut"},
		"its deletion":      {newVM(going), Look{}, "the VM is being deleted"},
		"a VMI":             {newVM(), Look{VMI: &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}}, `the VM has a virtual machine instance in phase "Running", which has to go first`},
		"its guest":         {newVM(), Look{Rivals: []vmicontroller.Rival{{Pod: "p", VMI: "vm"}}}, "the launcher pod p of the VM has not ended"},
		"another's guest":   {newVM(), Look{Rivals: []vmicontroller.Rival{{Pod: "p", VMI: "other", Claim: "data"}}}, "the claim data is written to by the guest of VMI other (pod p)"},
		"another's pod":     {newVM(), Look{Rivals: []vmicontroller.Rival{{Pod: "p", Maintains: "other", Claim: "data"}}}, "the maintenance pod p of other uses the claim data"},
		"itself":            {newVM(), Look{Rivals: []vmicontroller.Rival{{Pod: "a", UID: "a-uid"}}}, ""},
		"a worker":          {newVM(), Look{Users: pods(newPod("done", finished), newPod("fills", onClaim("x", "pod-claim")))}, "the pod fills uses the claim pod-claim; the lock is taken when it has ended"},
		"a plugged disk":    {newVM(), Look{Users: pods(newPod("plug", onClaim("pod-claim"), attaches("other")))}, "the claim pod-claim is plugged into the guest of VMI other (pod plug)"},
		"an upload":         {newVM(), Look{Filling: "the claim data awaits an upload"}, "the claim data awaits an upload"},
		"a strange word":    {newVM(), Look{Users: pods(newPod("plug", onClaim("pod-claim"), attaches("any\ntext")))}, "the pod plug uses the claim pod-claim; the lock is taken when it has ended"},
		"a disk not filled": {newVM(), Look{DataVolumes: []*cdiv1.DataVolume{{ObjectMeta: metav1.ObjectMeta{Name: "ok"}, Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded}}, {ObjectMeta: metav1.ObjectMeta{Name: "dv"}, Status: cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress}}}}, `the DataVolume dv is not filled yet (phase "ImportInProgress")`},
	} {
		if got := Obstacle(c.vm, newPod("a", onClaim("pod-claim")), &c.look); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// attaches makes a pod an attachment pod of a VMI.
func attaches(vmi string) podChange {
	return func(p *corev1.Pod) {
		p.Labels[v1.AppLabel] = layout.AttachmentApp
		p.Annotations = map[string]string{v1.DomainAnnotation: vmi}
	}
}

func onClaim(claims ...string) podChange {
	return func(p *corev1.Pod) {
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	}
}

func TestWhoIsKeptFromNothing(t *testing.T) {
	other := func(p *corev1.Pod) { p.Labels = nil }
	got := Bystanders([]string{"data", "root"}, []corev1.Pod{
		*newPod("z", other, onClaim("root")), *newPod("b", other, onClaim("x", "data")), *newPod("x", other, onClaim("x")),
		*newPod("ours", onClaim("data")), *newPod("done", other, onClaim("data"), finished),
	})
	if len(got) != 2 || got[0] != "b" || got[1] != "z" {
		t.Errorf("these are named: %v", got)
	}
}

func TestWhichClaimsCount(t *testing.T) {
	vm := newVM(func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	})
	got := Claims(vm, newPod("a", onClaim("data", "root", "data")))
	if len(got) != 3 || got[0] != "root" || got[2] != "data" {
		t.Errorf("these count: %v", got)
	}
	// Other pods may use a folder meanwhile.
	vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, v1.Volume{Name: "folder", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "shared"}}})
	vm.Spec.Template.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "folder"}}
	if got := Claims(vm, newPod("a")); slices.Contains(got, "shared") {
		t.Errorf("with a shared folder these count: %v", got)
	}
	if got := Claims(vm, newPod("a", onClaim("shared"))); !slices.Contains(got, "shared") {
		t.Errorf("for a pod with that folder these count: %v", got)
	}
	if got := Claims(&v1.VirtualMachine{}, newPod("a")); len(got) != 0 {
		t.Errorf("of a VM without a template these count: %v", got)
	}
	pod := newPod("a", onClaim("data", "root"), func(p *corev1.Pod) { p.Labels[layout.ClaimLabel("forged")] = "" })
	lock.LabelClaims(pod)
	if _, forged := pod.Labels[layout.ClaimLabel("forged")]; forged || len(pod.Labels) != 4 {
		t.Errorf("its labels are %v", pod.Labels)
	}
}
