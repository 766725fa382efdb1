package maintenance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

type placingCase struct {
	o      Observed
	needs  Question
	step   Step
	pod    string
	claims []string
	why    string
}

func filler(name string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
}

func place(name string, bound corev1.PersistentVolumeClaimPhase, phase cdiv1.DataVolumePhase) placement.Claim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Status.Phase = bound
	return placement.Claim{Name: name, Claim: claim, Source: name, DataVolume: filler(name, phase)}
}

// provisions is the provisioning pod of a maintenance pod.
func provisions(name string, changes ...podChange) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "provisions-" + name, CreationTimestamp: metav1.NewTime(now),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(newPod(name), corev1.SchemeGroupVersion.WithKind("Pod"))}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func unplaceable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available"}}
}

// TestDisksArePlacedForMaintenanceAsForAStart: nobody else places the disks of a halted machine.
func TestDisksArePlacedForMaintenanceAsForAStart(t *testing.T) {
	const finding = "finding a node on which the VM fits and these claims can be bound: root"
	waiting := place("root", corev1.ClaimPending, cdiv1.WaitForFirstConsumer)
	filling := place("root", corev1.ClaimBound, cdiv1.ImportInProgress)
	data := place("data", corev1.ClaimBound, cdiv1.Succeeded)
	look := func(changes ...func(*Look)) *Look {
		l := &Look{DataVolumes: []*cdiv1.DataVolume{filler("root", cdiv1.WaitForFirstConsumer)}, PlacesAsked: true, Places: []placement.Claim{waiting, data}}
		for _, change := range changes {
			change(l)
		}
		return l
	}
	places := func(claims ...placement.Claim) func(*Look) { return func(l *Look) { l.Places = claims } }
	filled := func(l *Look) {
		l.DataVolumes, l.Places, l.PluggedAsked = nil, []placement.Claim{data}, true
	}
	with := func(l *Look, provisioning ...*corev1.Pod) Observed {
		return Observed{Machine: newVM(), Pods: pods(newPod("a")), Provisioning: provisioning, Look: l}
	}
	state := newVM(func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	})
	for name, c := range map[string]placingCase{
		"a disk is not filled: it is asked where they are": {o: with(look(func(l *Look) { l.PlacesAsked = false })), needs: NeedPlaces},
		"it waits for a node":                              {o: with(look()), step: Provision, pod: "a", claims: []string{"root", "data"}, why: finding},
		"one is being found":                               {o: with(look(), provisions("a")), why: finding},
		"none is found":                                    {o: with(look(), provisions("a", unplaceable)), why: finding + "; 0/2 nodes are available"},
		"the disk is placed, and the pod is not yet":       {o: with(look(places(filling)), provisions("a")), why: "waiting for DataVolumes to be filled: root"},
		"both are: the pod goes":                           {o: with(look(places(filling)), provisions("a", bound)), step: Unprovision, pod: "provisions-a", why: "waiting for DataVolumes to be filled: root"},
		"it is being filled":                               {o: with(look(places(filling))), why: "waiting for DataVolumes to be filled: root"},
		"a claim is not there":                             {o: with(look(places(waiting, placement.Claim{Name: "data"}))), why: "these claims do not exist: data"},
		"that of the VM's state is not there before a start": {
			o:    Observed{Machine: state, Pods: pods(newPod("a")), Look: look(places(waiting, placement.Claim{Name: stateclaim.ClaimOf(state)}))},
			step: Provision, pod: "a", claims: []string{"root"}, why: finding,
		},
		"the disks are apart": {
			o: with(look(places(waiting, data), func(l *Look) {
				l.Topologies = []placement.Topology{{Claim: "data", Nodes: []string{"one"}}, {Claim: "more", Nodes: []string{"two"}}}
			})),
			why: "no node has all of the VM's disks: claim data is on node one, claim more is on node two",
		},
		"it is filled in between":                     {o: with(look(places(place("root", corev1.ClaimBound, cdiv1.Succeeded)))), why: `the DataVolume root is not filled yet (phase "WaitForFirstConsumer")`},
		"all are filled: the pod goes first":          {o: with(look(filled), provisions("a")), step: Unprovision, pod: "provisions-a"},
		"all are filled: the VM is locked":            {o: with(look(filled)), step: Lock, pod: "a"},
		"the VM has been started":                     {o: with(look(func(l *Look) { l.VMI = &v1.VirtualMachineInstance{} }), provisions("a")), step: Unprovision, pod: "provisions-a"},
		"a guest writes to one of them":               {o: with(look(func(l *Look) { l.Rivals = []vmicontroller.Rival{{Pod: "p"}} })), why: "the launcher pod p of the VM has not ended"},
		"another pod of the VM's has not ended":       {o: Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("z", lifted, bound)), Look: look()}, why: "the maintenance pod z of the VM has not ended"},
		"one of a pod whose turn is later":            {o: Observed{Machine: newVM(), Pods: pods(newPod("a"), newPod("b")), Provisioning: pods(provisions("b")), Look: look()}, step: Unprovision, pod: "provisions-b"},
		"a provisioning pod is left while one has it": {o: Observed{Machine: newVM(held, open), HolderAsked: true, Holder: newPod("a", lifted, bound), Provisioning: pods(provisions("a"))}, step: Unprovision, pod: "provisions-a"},
	} {
		c.o.Now = now
		p := Decide(c.o)
		pod, why := "", ""
		if p.Pod != nil {
			pod = p.Pod.Name
		}
		if len(p.Waits) > 0 {
			why = p.Waits[0].Why
		}
		got := []any{p.Needs, p.Step, pod, p.Claims, why}
		if diff := cmp.Diff([]any{c.needs, c.step, c.pod, c.claims, c.why}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (p.Step == Rest || !p.Step.Again()) && why != "" && p.After == 0 {
			t.Errorf("%s: nobody looks again", name)
		}
	}
}
