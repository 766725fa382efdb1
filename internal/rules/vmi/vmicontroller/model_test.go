package vmicontroller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// model is a cluster with one VMI, in which all events may happen at any time: caches lag, the controller dies between
// two actions, and the scheduler, the kubelet, virt-handler and users act. It checks the invariants after each step,
// and at the end that the cluster comes to rest.
type model struct {
	// vmis and pods are the stored versions in the API server; the last one is current, and nil means "does not exist".
	// Caches may show any version from the last seen one on.
	vmis     []*v1.VirtualMachineInstance
	pods     []*corev1.Pod
	vmiCache int
	podCache int
	// guests are the pods in which a guest runs, and everRan those in which one has ever run.
	guests  map[types.UID]bool
	everRan map[types.UID]bool
	missing []string
	made    int
	// maintained counts how often the VMI was told to have no guest.
	maintained int
	now        time.Time
}

func newModel() *model {
	m := &model{guests: map[types.UID]bool{}, everRan: map[types.UID]bool{}, now: now}
	m.vmis = []*v1.VirtualMachineInstance{newVMI()}
	m.vmis[0].ResourceVersion = "0"
	m.pods = []*corev1.Pod{nil}
	return m
}

func (m *model) vmi() *v1.VirtualMachineInstance { return m.vmis[len(m.vmis)-1] }
func (m *model) pod() *corev1.Pod                { return m.pods[len(m.pods)-1] }

func (m *model) writeVMI(vmi *v1.VirtualMachineInstance) {
	if vmi != nil {
		if vmi.DeletionTimestamp != nil && len(vmi.Finalizers) == 0 {
			vmi = nil
		} else {
			vmi.ResourceVersion = fmt.Sprint(len(m.vmis))
		}
	}
	m.vmis = append(m.vmis, vmi)
}

func (m *model) writePod(pod *corev1.Pod) { m.pods = append(m.pods, pod) }

func (m *model) editPod(edit func(*corev1.Pod)) {
	pod := m.pod().DeepCopy()
	edit(pod)
	m.writePod(pod)
}

// controller is one round of the loop with its caches, cut off after `budget` actions as if the process had died.
func (m *model) controller(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, budget int) {
	if vmi == nil {
		return
	}
	o := Observed{VMI: vmi, Pod: pod, Claims: missingClaims(m.missing...), Now: m.now}
	plan := m.plan(&o)
	if plan.CreatePod && spend(&budget) && m.pod() == nil {
		m.made++
		m.writePod(newPod(func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprintf("pod-%d", m.made)) }))
	}
	changed := outcomeKey(plan.VMI) != outcomeKey(vmi)
	if changed && spend(&budget) {
		if m.vmi() == nil || m.vmi().ResourceVersion != vmi.ResourceVersion {
			return // the API server refuses, because of another write
		}
		m.writeVMI(plan.VMI.DeepCopy())
	}
	if plan.DeletePod && spend(&budget) && m.pod() != nil && m.pod().UID == o.Pod.UID {
		m.deletePod()
	}
}

// plan decides and answers questions, as the loop does.
func (m *model) plan(o *Observed) Plan {
	plan := Decide(*o)
	for asked := 0; plan.Needs != "" && plan.Needs != NeedDisks; asked++ {
		if asked > 4 {
			panic("a question is asked again that was answered: " + plan.Needs)
		}
		if plan.Needs == NeedPod {
			o.Pod, o.PodAsked = m.pod(), true
		}
		o.RivalsAsked = o.RivalsAsked || plan.Needs == NeedRivals
		o.VMAsked = o.VMAsked || plan.Needs == NeedVM
		o.WarningAsked = o.WarningAsked || plan.Needs == NeedWarning
		o.NodeAsked, o.Node = true, answering
		plan = Decide(*o)
	}
	return plan
}

func spend(budget *int) bool {
	*budget--
	return *budget >= 0
}

// outcomeKey distinguishes versions of a VMI by the fields that the plan sets.
func outcomeKey(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprint(vmi.Status, vmi.Finalizers, vmi.Labels)
}

func (m *model) deletePod() {
	if m.pod().Spec.NodeName == "" {
		m.writePod(nil)
		return
	}
	m.editPod(terminating)
}

// virt-handler writes with the version that it has read, and so starts a guest only in the pod that the stored VMI
// names.
func (m *model) handlerStarts() {
	vmi, pod := m.vmi(), m.pod()
	if vmi == nil || pod == nil || vmi.Status.Phase != v1.Scheduled || vmi.DeletionTimestamp != nil ||
		pod.DeletionTimestamp != nil || finished(pod) || vmi.Status.ActivePods[pod.UID] == "" {
		return
	}
	m.guests[pod.UID], m.everRan[pod.UID] = true, true
	m.editPod(podPhase(corev1.PodRunning))
	next := vmi.DeepCopy()
	enter(next, v1.Running, m.now)
	m.writeVMI(next)
}

// handlerEnds ends a running guest and reports it.
func (m *model) handlerEnds(failed bool) {
	vmi, pod := m.vmi(), m.pod()
	if vmi == nil || pod == nil || vmi.Status.Phase != v1.Running {
		return
	}
	delete(m.guests, pod.UID)
	next := vmi.DeepCopy()
	if failed {
		enter(next, v1.Failed, m.now)
	} else {
		enter(next, v1.Succeeded, m.now)
	}
	m.writeVMI(next)
}

// kubeletEnds ends the pod's processes with the guest, and reports it.
func (m *model) kubeletEnds(phase corev1.PodPhase) {
	pod := m.pod()
	if pod == nil || pod.Spec.NodeName == "" || finished(pod) {
		return
	}
	delete(m.guests, pod.UID)
	m.editPod(podPhase(phase))
}

// kubeletRemoves ends a pod's deletion.
func (m *model) kubeletRemoves() {
	if pod := m.pod(); pod != nil && pod.DeletionTimestamp != nil && finished(pod) {
		m.writePod(nil)
	}
}

func (m *model) schedule() {
	if pod := m.pod(); pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
		m.editPod(bound)
	}
}

func (m *model) deleteVMI() {
	if vmi := m.vmi(); vmi != nil && vmi.DeletionTimestamp == nil {
		next := vmi.DeepCopy()
		next.DeletionTimestamp = &metav1.Time{Time: m.now}
		m.writeVMI(next)
	}
}

// wantMaintenance tells the VMI to have no guest for now, or reverts that.
func (m *model) wantMaintenance(want bool) {
	vmi := m.vmi()
	if vmi == nil || lock.Wanted(vmi) == want {
		return
	}
	next := vmi.DeepCopy()
	if next.Spec.StartStrategy = nil; want {
		next.Spec.StartStrategy = new(lock.StartStrategy)
		m.maintained++
	}
	m.writeVMI(next)
}

// locks is the loop that locks the VMI (package maintenance), as far as it concerns the guest: the lock is wanted, and
// there is no guest.
func (m *model) locks() {
	vmi, pod := m.vmi(), m.pod()
	if vmi == nil || vmi.DeletionTimestamp != nil || !lock.Wanted(vmi) || vmistatus.StageOf(vmi.Status.Phase) != vmistatus.Waiting ||
		pod != nil && pod.Spec.NodeName != "" && !finished(pod) {
		return
	}
	next := vmi.DeepCopy()
	lock.Take(next, newPod(), m.now)
	m.writeVMI(next)
}

func (m *model) unlocks() {
	vmi := m.vmi()
	if vmi == nil {
		return
	}
	if _, locked := lock.Of(vmi); locked {
		next := vmi.DeepCopy()
		lock.Drop(next)
		m.writeVMI(next)
	}
}

// rank orders the phases of a life.
func rank(phase v1.VirtualMachineInstancePhase) int {
	return slices.Index([]v1.VirtualMachineInstancePhase{v1.VmPhaseUnset, v1.Pending, lock.Phase, v1.Scheduling, v1.Scheduled, v1.Running}, phase)
}

// check checks the invariants after every step.
func (m *model) check(t *rapid.T) {
	if len(m.guests) > 1 || len(m.everRan) > 1+m.maintained {
		t.Fatalf("guests ran in %d pods: %v", len(m.everRan), m.everRan)
	}
	m.checkPhases(t)
	vmi := m.vmi()
	switch {
	case len(m.guests) == 0:
	case vmi == nil:
		t.Fatal("the VMI is gone and its guest runs")
	case vmi.Status.Phase == v1.Failed:
		t.Fatal("the VMI has failed and its guest runs")
	default:
		if _, locked := lock.Of(vmi); locked {
			t.Fatal("the VMI is locked and its guest runs")
		}
	}
}

// checkPhases compares the phases of consecutive versions of the VMI.
func (m *model) checkPhases(t *rapid.T) {
	for i := 1; i < len(m.vmis) && m.vmis[i] != nil; i++ {
		from, to := m.vmis[i-1].Status.Phase, m.vmis[i].Status.Phase
		anew := Maintained(m.vmis[i-1]) && (to == v1.Pending || to == lock.Phase)
		if m.vmis[i-1].IsFinal() && from != to && !anew {
			t.Fatalf("the final phase %s became %s", from, to)
		}
		left := from == lock.Phase && to == v1.Pending
		if !m.vmis[i].IsFinal() && rank(to) < rank(from) && !anew && !left {
			t.Fatalf("the phase went back from %s to %s", from, to)
		}
	}
}

// settle lets every part work on the truth until nothing changes.
func (m *model) settle() {
	m.missing = nil
	m.unlocks()
	for range 60 {
		m.now = m.now.Add(handlerPatience)
		m.controller(m.vmi(), m.pod(), 10)
		m.schedule()
		m.handlerStarts()
		vmi, pod := m.vmi(), m.pod()
		if vmi != nil && vmi.DeletionTimestamp != nil {
			m.handlerEnds(false)
		}
		if pod != nil && (pod.DeletionTimestamp != nil || vmi != nil && vmi.IsFinal()) {
			m.kubeletEnds(corev1.PodSucceeded)
		}
		m.kubeletRemoves()
	}
}

func TestWhateverHappensThereIsOneGuestAndItComesToRest(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := newModel()
		// Later stages of a life must be as likely as its beginning.
		for range rapid.IntRange(0, 4).Draw(t, "rounds in which all goes well") {
			m.controller(m.vmi(), m.pod(), 10)
			m.schedule()
			m.handlerStarts()
		}
		steps := map[string]func(*rapid.T){
			"": m.check,
			"the controller works": func(t *rapid.T) {
				m.controller(m.vmis[m.vmiCache], m.pods[m.podCache], rapid.IntRange(0, 3).Draw(t, "actions until it dies"))
			},
			// The caches of the former leader lag, as do those of one that starts on a lagging API server.
			"another leader works on what is true": func(*rapid.T) { m.controller(m.vmi(), m.pod(), 10) },
			"a claim goes":                         func(*rapid.T) { m.missing = []string{"data"} },
			"the claim is there":                   func(*rapid.T) { m.missing = nil },
			"the VMI cache moves on": func(t *rapid.T) {
				m.vmiCache = moveOn(t, m.vmiCache, len(m.vmis)-1)
			},
			"the pod cache moves on": func(t *rapid.T) {
				m.podCache = moveOn(t, m.podCache, len(m.pods)-1)
			},
			"time passes":            func(*rapid.T) { m.now = m.now.Add(4 * time.Second) },
			"the scheduler binds":    func(*rapid.T) { m.schedule() },
			"virt-handler starts":    func(*rapid.T) { m.handlerStarts() },
			"the guest powers off":   func(*rapid.T) { m.handlerEnds(false) },
			"the guest crashes":      func(*rapid.T) { m.handlerEnds(true) },
			"the pod ends":           func(*rapid.T) { m.kubeletEnds(corev1.PodSucceeded) },
			"the pod fails":          func(*rapid.T) { m.kubeletEnds(corev1.PodFailed) },
			"the pod is removed":     func(*rapid.T) { m.kubeletRemoves() },
			"somebody deletes it":    func(*rapid.T) { m.deleteVMI() },
			"somebody evicts a pod":  func(*rapid.T) { m.evict() },
			"it is to have no guest": func(*rapid.T) { m.wantMaintenance(true) },
			"it may have a guest":    func(*rapid.T) { m.wantMaintenance(false) },
			"it is locked":           func(*rapid.T) { m.locks() },
			"it is unlocked":         func(*rapid.T) { m.unlocks() },
		}
		t.Repeat(steps)
		m.settle()
		m.check(t)
		switch vmi := m.vmi(); {
		case vmi == nil, vmi.DeletionTimestamp == nil && vmi.IsFinal() && !lock.Wanted(vmi):
		case vmi.DeletionTimestamp == nil && lock.Wanted(vmi) && vmi.Status.Phase == v1.Pending && m.pod() == nil:
		case vmi.DeletionTimestamp == nil && vmi.Status.Phase == v1.Running && len(m.guests) == 1:
		default:
			t.Fatalf("it does not come to rest: phase %q, deleted %v, pod %+v", vmi.Status.Phase, vmi.DeletionTimestamp != nil, m.pod())
		}
	})
}

// moveOn brings a cache to the newest version or one step nearer to it.
func moveOn(t *rapid.T, from, newest int) int {
	if rapid.Bool().Draw(t, "up to date") {
		return newest
	}
	return min(from+1, newest)
}

func (m *model) evict() {
	if pod := m.pod(); pod != nil && pod.DeletionTimestamp == nil {
		m.deletePod()
	}
}
