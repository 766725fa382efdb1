//go:build apiserver

package controller

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// createEvictable makes a VMI that migrates when its pod is evicted.
func (w *world) createEvictable(name string) {
	w.t.Helper()
	w.createWithStrategy(name, v1.EvictionStrategyLiveMigrate)
}

func (w *world) createWithStrategy(name string, strategy v1.EvictionStrategy) {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Finalizers: []string{v1.VirtualMachineInstanceFinalizer}},
		Spec:       testSpec(),
	}
	vmi.Spec.EvictionStrategy = &strategy
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
}

// evicts plays a virt-api that gets an eviction of the VMI's pod.
func (w *world) evicts(vmi string, cordoned bool) {
	w.t.Helper()
	w.eventually("the VMI to be marked", func() (bool, string) {
		from := w.vmi(vmi)
		err := w.client.Patch(w.ctx, evacuation.Mark(from, cordoned), client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) cordonedNode() string {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-cordoned"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	w.do("creating a node", w.client.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), node) })
	return node.Name
}

func (w *world) uncordon(name string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.do("uncordoning", w.client.Patch(w.ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`))))
}

// evacuations returns the migrations that were made for an evacuation.
func (w *world) evacuations() []v1.VirtualMachineInstanceMigration {
	var list, out v1.VirtualMachineInstanceMigrationList
	w.do("listing the migrations", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	for _, m := range list.Items {
		if _, is := m.Annotations[v1.EvacuationMigrationAnnotation]; is {
			out.Items = append(out.Items, m)
		}
	}
	return out.Items
}

func (w *world) awaitEvacuation(vmi string) *v1.VirtualMachineInstanceMigration {
	w.t.Helper()
	var found *v1.VirtualMachineInstanceMigration
	w.eventually("a migration for the evacuation of "+vmi, func() (bool, string) {
		all := w.evacuations()
		found = nil
		for i := range all {
			if all[i].Spec.VMIName == vmi && !all[i].IsFinal() {
				found = &all[i]
			}
		}
		return found != nil, fmt.Sprintf("there are %+v; the VMI is %+v", all, w.vmi(vmi).Status)
	})
	return found
}

func (w *world) runOn(name, node string) *corev1.Pod {
	w.t.Helper()
	pod := w.awaitLauncher(name)
	w.bindTo(pod, node)
	w.awaitPhase(name, v1.Scheduled)
	w.phase(name, v1.Running)
	return pod
}

// awaitEvictionMark waits until the pod tells the descheduler, or no longer tells it, that it is being evicted.
func (w *world) awaitEvictionMark(pod *corev1.Pod, want bool) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the pod's mark to be %t", want), func() (bool, string) {
		var is corev1.Pod
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), &is))
		_, marked := is.Annotations[launcherpod.EvictionInProgressAnnotation]
		_, asks := is.Annotations[launcherpod.EvictOnlyAnnotation]
		return marked == want && asks, fmt.Sprint(is.Annotations)
	})
}

func TestAnEvictedGuestMigratesAndIsNotMarkedAnyMore(t *testing.T) {
	w := newWorld(t)
	w.createEvictable("vmi")
	source := w.runOn("vmi", testNode)
	w.awaitEvictionMark(source, false)
	w.evicts("vmi", false)
	m := w.awaitEvacuation("vmi")
	w.awaitEvictionMark(source, true)
	if *m.Spec.Priority != v1.PrioritySystemMaintenance || m.Annotations[v1.EvacuationMigrationAnnotation] != testNode {
		t.Errorf("the migration is %+v", m)
	}
	target := w.bringTo(m, v1.MigrationRunning, otherNode)
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	w.expectArrived(target, otherNode)
	w.awaitEvictionMark(target, false)
	if vmi := w.vmi("vmi"); vmi.Status.EvacuationNodeName != "" {
		t.Errorf("the VMI is marked for node %s", vmi.Status.EvacuationNodeName)
	}
	if all := w.evacuations(); len(all) != 1 {
		t.Errorf("%d migrations were made for one eviction", len(all))
	}
}

func TestAnUncordonCancelsWhatHasNotBegun(t *testing.T) {
	w := newWorld(t)
	node := w.cordonedNode()
	w.createEvictable("waits")
	w.createEvictable("runs")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"waits", "runs"} {
		pods[name] = w.runOn(name, node)
		w.evicts(name, true)
	}
	runs := w.awaitEvacuation("runs")
	w.bringTo(runs, v1.MigrationRunning, otherNode)
	waits := w.awaitEvacuation("waits")
	target := w.awaitTarget(waits)
	w.awaitEvictionMark(pods["waits"], true)
	w.uncordon(node)
	w.awaitMigrationGone(waits.Name)
	w.awaitPodDeletion(target)
	for _, name := range []string{"waits", "runs"} {
		w.eventually(name+" not to be marked", func() (bool, string) {
			vmi := w.vmi(name)
			return vmi.Status.EvacuationNodeName == "" && vmi.Annotations[evacuation.CordonAnnotation] == "", fmt.Sprintf("%+v %+v", vmi.Annotations, vmi.Status)
		})
		w.awaitEvictionMark(pods[name], false)
	}
	if m := w.migration(runs.Name); m == nil || m.Status.Phase != v1.MigrationRunning || m.DeletionTimestamp != nil {
		t.Errorf("the migration that runs is %+v", m)
	}
}

func TestAnEvictedGuestThatCannotMigrateIsStoppedWhereItMayBe(t *testing.T) {
	w := newWorld(t)
	pods := map[string]*corev1.Pod{}
	for name, strategy := range map[string]v1.EvictionStrategy{"may": v1.EvictionStrategyLiveMigrateIfPossible, "must-not": v1.EvictionStrategyLiveMigrate} {
		w.createWithStrategy(name, strategy)
		pods[name] = w.runOn(name, testNode)
		w.eventually("the condition LiveMigratable", func() (bool, string) {
			from := w.vmi(name)
			to := from.DeepCopy()
			to.Status.Conditions = append(to.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse})
			err := w.client.Patch(w.ctx, to, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
			return err == nil, fmt.Sprint(err)
		})
	}
	w.evicts("must-not", false)
	w.evicts("may", false)
	w.awaitPodDeletion(pods["may"])
	if w.deleting(pods["must-not"]) {
		t.Error("a guest that must not be stopped is stopped")
	}
	if all := w.evacuations(); len(all) > 0 {
		t.Errorf("guests that can't migrate have the migrations %+v", all)
	}
}

// guestsBudget returns the namespace's disruption budget for guests, or nil.
func (w *world) guestsBudget() *policyv1.PodDisruptionBudget {
	w.t.Helper()
	var budget policyv1.PodDisruptionBudget
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: evacuation.BudgetName}, &budget)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading the budget", err)
	return &budget
}

func (w *world) awaitGuestsBudget(what string) *policyv1.PodDisruptionBudget {
	w.t.Helper()
	var budget *policyv1.PodDisruptionBudget
	w.eventually("the budget "+what, func() (bool, string) {
		budget = w.guestsBudget()
		return budget != nil && budget.DeletionTimestamp == nil && equality.Semantic.DeepEqual(budget.Spec, evacuation.Budget(w.namespace).Spec), fmt.Sprintf("it is %+v", budget)
	})
	return budget
}

func TestEvictionsOfGuestsThatAreToStayAreWithinNoBudget(t *testing.T) {
	var ahead atomic.Int64
	w := newWorld(t, func(o *options) { o.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	w.createWithStrategy("stopped", v1.EvictionStrategyNone)
	w.run("stopped")
	if w.guestsBudget() != nil {
		t.Error("there is a budget for a guest that may be stopped")
	}
	w.createEvictable("kept")
	w.runOn("kept", testNode)
	made := w.awaitGuestsBudget("to be made")

	var loosened int32
	loosen := func(budget *policyv1.PodDisruptionBudget) {
		loose := budget.DeepCopy()
		loosened++ // a patch without a change triggers no event
		loose.Spec.MinAvailable = new(intstr.FromInt32(loosened))
		w.do("changing the budget", client.IgnoreNotFound(w.client.Patch(w.ctx, loose, client.MergeFrom(budget))))
	}
	loosen(made)
	w.awaitGuestsBudget("to be restored")
	w.do("deleting the budget", w.client.Delete(w.ctx, made))
	w.eventually("another budget", func() (bool, string) { b := w.guestsBudget(); return b != nil && b.UID != made.UID, "" })

	w.phase("kept", v1.Failed)
	w.eventually("the budget to go some time after its last guest", func() (bool, string) {
		budget := w.guestsBudget()
		if budget != nil {
			ahead.Add(int64(10 * time.Minute))
			loosen(budget) // triggers the loop, which would otherwise look only later
		}
		return budget == nil, ""
	})
}

func TestAnotherLeaderMakesNoSecondMigration(t *testing.T) {
	w := newWorld(t)
	w.createEvictable("vmi")
	w.runOn("vmi", testNode)
	w.stop()
	w.evicts("vmi", false)
	w.startLoops()
	first := w.awaitEvacuation("vmi")
	w.restartLoops()
	w.bringTo(first, v1.MigrationTargetReady, otherNode)
	if all := w.evacuations(); len(all) != 1 {
		t.Errorf("%d migrations were made", len(all))
	}
}
