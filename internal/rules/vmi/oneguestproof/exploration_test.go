package oneguestproof

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	handlervmi "drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Each scenario is small in one dimension so that it can be large in another.
var scenarios = []scenario{
	{name: "a life from its beginning, and a deletion", budget: [budgets]int8{deletesVMI: 1}},
	{name: "the VMI is deleted and its pod orphaned", started: true, budget: [budgets]int8{orphansVMI: 1, unhears: 1}},
	{name: "the pod loses its owner, the VMI is deleted", started: true, budget: [budgets]int8{disownsPod: 1, deletesVMI: 1}},
	{name: "the pod loses its owner before its guest runs", budget: [budgets]int8{disownsPod: 1}},
	{name: "the pod is deleted by force, and the end is not heard", started: true, budget: [budgets]int8{forcesPod: 1, unhears: 1}},
	{name: "the pod is deleted by force before its guest runs", budget: [budgets]int8{forcesPod: 1}},
	{name: "the pod is deleted by force, and the VMI", started: true, budget: [budgets]int8{forcesPod: 1, deletesVMI: 1}},
	{name: "the VMI's finalizers are taken away", started: true, budget: [budgets]int8{stripsVMI: 1, unhears: 1}},
	{name: "the VMI's finalizers are taken away, and the pod's owner", started: true, budget: [budgets]int8{stripsVMI: 1, disownsPod: 1}},
	{name: "an editor changes the pod, and takes the VMI's finalizers away", started: true, budget: [budgets]int8{relabels: 3, disownsPod: 1, stripsVMI: 1}},
	{name: "somebody with more rights takes the name off the pod, and the VMI's finalizers and the pod's owner away", started: true, rights: true, budget: [budgets]int8{relabels: 1, disownsPod: 1, stripsVMI: 1}},
	{name: "the VMI loses its owner, and is deleted", started: true, budget: [budgets]int8{disownsVMI: 1, deletesVMI: 1, unhears: 1}},
	{name: "the VMI loses its owner before its guest runs", budget: [budgets]int8{disownsVMI: 1}},
	{name: "the node falls silent, and the pod is deleted by force", started: true, budget: [budgets]int8{silences: 1, forcesPod: 1}},
	{name: "the node falls silent, and VMI and pod are deleted", started: true, prompt: true, budget: [budgets]int8{silences: 1, deletesVMI: 1, deletesPod: 1}},
	{name: "an old leader, and a guest that ends by itself", started: true, oldLeader: true, prompt: true},
}

// longScenarios are added in the long run.
var longScenarios = []scenario{
	{name: "an old leader from the beginning", oldLeader: true, prompt: true},
	{name: "an old leader, and the VMI is deleted and its pod orphaned", started: true, oldLeader: true, prompt: true, budget: [budgets]int8{orphansVMI: 1}},
	{name: "an old leader, and a pod deleted before its guest runs", oldLeader: true, prompt: true, budget: [budgets]int8{deletesPod: 1}},
	{name: "an old leader from the beginning, and a forced deletion", oldLeader: true, prompt: true, budget: [budgets]int8{forcesPod: 1}},
	{name: "an old leader, and a forced deletion that is not heard", started: true, oldLeader: true, prompt: true, budget: [budgets]int8{forcesPod: 1, unhears: 1}},
	{name: "an old leader, and finalizers and owner are taken away", started: true, oldLeader: true, prompt: true, budget: [budgets]int8{stripsVMI: 1, disownsPod: 1}},
	{name: "an old leader, a silent node and a forced deletion", started: true, oldLeader: true, prompt: true, budget: [budgets]int8{silences: 1, forcesPod: 1}},
	{name: "an old leader and late virt-handlers, the VMI is deleted and its pod orphaned", started: true, oldLeader: true, budget: [budgets]int8{orphansVMI: 1}},
	{name: "an old leader and late virt-handlers, a pod deleted before its guest runs", oldLeader: true, budget: [budgets]int8{deletesPod: 1}},
	{name: "much at once", budget: [budgets]int8{deletesVMI: 1, deletesPod: 1, forcesPod: 1, disownsPod: 1, unhears: 1}},
	{name: "much at once, and a silent node", started: true, budget: [budgets]int8{orphansVMI: 1, deletesPod: 1, forcesPod: 1, silences: 1, unhears: 1}},
}

func TestAVMNeverHasTwoGuests(t *testing.T) {
	exploration.EachScenario(t, scenarios, longScenarios, func(sc scenario) string { return sc.name },
		func(_ *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			sc.rules = drydocks
			return explore(&sc)
		})
}

// life returns Drydock's rules with a changed view for vmicontroller.Decide.
func life(changes ...func(*vmicontroller.Observed)) rules {
	r := drydocks
	r.life = func(o vmicontroller.Observed) vmicontroller.Plan {
		for _, change := range changes {
			change(&o)
		}
		return vmicontroller.Decide(o)
	}
	return r
}

// Former and possible rules. Some are wrong only together: one stops an error that another lets through.
func byOwnerOnly(o *vmicontroller.Observed) {
	if o.Pod != nil && !metav1.IsControlledBy(o.Pod, o.VMI) {
		o.Pod = nil
	}
}

func withoutLooking(o *vmicontroller.Observed) { o.Rivals, o.RivalsAsked = nil, true }

func goneIsEnded(o *vmicontroller.Observed) { o.NodeAsked, o.Node = true, fenced.object() }

func timePassesInSilence(o *vmicontroller.Observed) {
	if o.Node != nil {
		o.Node = answers.object()
	}
}

func cachesAreBelieved(o *vmicontroller.Observed) { o.PodAsked = true }

var (
	// The garbage collector alone deletes pods whose VMI is gone.
	withoutSweeping = func() rules {
		r := drydocks
		r.sweep = func(*corev1.Pod, types.UID) bool { return false }
		return r
	}()
	// A search finds pods by a label that an editor may remove.
	asItWas = func() rules {
		r := drydocks
		r.finds = byLabel
		r.frozen = func(label string) bool { return label == v1.AppLabel || label == v1.CreatedByLabel }
		return r
	}()
	blindHandler = func() rules {
		r := withoutSweeping
		r.next = func(o handlervmi.Observed) handlervmi.Step {
			if o.Deserted {
				return handlervmi.Release
			}
			step, _ := handlervmi.Next(o)
			return step
		}
		return r
	}()
)

// Each former or possible error must lead to two guests, or a VM that never runs again.
func TestWhatIsWrongIsFound(t *testing.T) {
	tests := map[string]struct {
		rules rules
		sc    scenario
		want  error
	}{
		"as it was, a pod belongs to its owner: the VMI is deleted and its pod orphaned": {
			life(byOwnerOnly, goneIsEnded, withoutLooking), scenario{started: true, budget: [budgets]int8{orphansVMI: 1}}, errTwoGuests},
		"as it was, a pod belongs to its owner: its owner is taken away": {
			life(byOwnerOnly, goneIsEnded, withoutLooking), scenario{started: true, budget: [budgets]int8{disownsPod: 1}}, errTwoGuests},
		"a pod belongs to its owner, all else as it is: its owner is taken away": {
			life(byOwnerOnly), scenario{started: true, budget: [budgets]int8{disownsPod: 1}}, errStuck},
		"nobody looks before a pod is made: finalizers are taken away": {
			life(withoutLooking), scenario{started: true, budget: [budgets]int8{stripsVMI: 1}}, errTwoGuests},
		"as it was, a pod that is gone has ended: it is deleted by force": {
			life(goneIsEnded), scenario{started: true, budget: [budgets]int8{forcesPod: 1}}, errTwoGuests},
		"as it was, a pod that is gone has ended: it is deleted by force while its guest starts": {
			life(goneIsEnded), scenario{budget: [budgets]int8{forcesPod: 1}}, errTwoGuests},
		"time passes on a silent node: a pod is deleted by force": {
			life(timePassesInSilence), scenario{started: true, budget: [budgets]int8{forcesPod: 1, silences: 1}}, errTwoGuests},
		"caches are believed, and nobody looks: an old leader's lack the pod of a guest": {
			life(cachesAreBelieved, goneIsEnded, withoutLooking), scenario{oldLeader: true, prompt: true}, errTwoGuests},
		"as it was, the policy kept two labels and pods were found by a third: it and the finalizers are taken away": {
			asItWas, scenario{started: true, budget: [budgets]int8{relabels: 1, stripsVMI: 1}}, errTwoGuests},
		"nobody sweeps: finalizers and owner are taken away": {
			withoutSweeping, scenario{started: true, budget: [budgets]int8{stripsVMI: 1, disownsPod: 1}}, errStuck},
		"virt-handler lets go of what is not seen, and nobody sweeps: the same": {
			blindHandler, scenario{started: true, budget: [budgets]int8{stripsVMI: 1, disownsPod: 1}}, errStuck},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.sc.rules = test.rules
			x, err := explore(&test.sc)
			var broken *exploration.Violation
			if !errors.As(err, &broken) {
				t.Fatalf("it survives (%v): %d states, %d transitions", err, x.States(), x.Transitions)
			}
			t.Log(broken)
			if !errors.Is(broken.Broken, test.want) {
				t.Errorf("it breaks %v, expected %v", broken.Broken, test.want)
			}
		})
	}
}

// TestWhatNobodyCanKnow shows the one way that is left open: a user who removes a VMI's finalizers and also deletes its
// pod by force removes every trace of the guest. virt-handler and the kubelet end it, but nobody waits.
func TestWhatNobodyCanKnow(t *testing.T) {
	sc := scenario{started: true, rules: drydocks, budget: [budgets]int8{stripsVMI: 1, forcesPod: 1}}
	_, err := explore(&sc)
	var broken *exploration.Violation
	if !errors.As(err, &broken) || !errors.Is(broken.Broken, errTwoGuests) {
		t.Fatalf("the exploration finds %v: say so in docs/lifecycle.md", err)
	}
	t.Log(broken)
}
