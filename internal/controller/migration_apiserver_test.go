//go:build apiserver

package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// The migration is as admission leaves it.
func (w *world) migrate(name, vmi string) *v1.VirtualMachineInstanceMigration {
	w.t.Helper()
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Finalizers: []string{v1.VirtualMachineInstanceMigrationFinalizer}},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: vmi},
	}
	w.do("asking for the migration", w.client.Create(w.ctx, m))
	return m
}

// migration returns a migration, or nil.
func (w *world) migration(name string) *v1.VirtualMachineInstanceMigration {
	m := &v1.VirtualMachineInstanceMigration{}
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading migration "+name, err)
	return m
}

func (w *world) awaitMigration(name string, phase v1.VirtualMachineInstanceMigrationPhase) *v1.VirtualMachineInstanceMigration {
	w.t.Helper()
	var m *v1.VirtualMachineInstanceMigration
	w.eventually(fmt.Sprintf("migration %s in phase %s", name, phase), func() (bool, string) {
		if m = w.migration(name); m == nil {
			return false, "there is none"
		}
		return m.Status.Phase == phase, fmt.Sprintf("it is in phase %q: %+v, VMI %+v", m.Status.Phase, m.Status, w.vmi(m.Spec.VMIName))
	})
	return m
}

func (w *world) awaitMigrationGone(name string) {
	w.t.Helper()
	w.eventually("migration "+name+" to go", func() (bool, string) {
		m := w.migration(name)
		return m == nil, fmt.Sprintf("it is still there: %+v", m)
	})
}

func (w *world) awaitAbort(vmi string) {
	w.t.Helper()
	w.eventually("the source to be asked", func() (bool, string) {
		ms := w.vmi(vmi).Status.MigrationState
		return ms.AbortRequested && !ms.Failed, fmt.Sprintf("%+v", ms)
	})
}

// awaitTarget waits for a migration's target pod.
func (w *world) awaitTarget(m *v1.VirtualMachineInstanceMigration) *corev1.Pod {
	w.t.Helper()
	var pod *corev1.Pod
	w.eventually("the target pod of migration "+m.Name, func() (bool, string) {
		for _, p := range w.pods() {
			if p.Labels[v1.MigrationJobLabel] == string(m.UID) {
				pod = &p
			}
		}
		return pod != nil, fmt.Sprintf("there is none: %+v", w.migration(m.Name))
	})
	return pod
}

func (w *world) startContainer(pod *corev1.Pod) {
	w.t.Helper()
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
}

func (w *world) endContainer(pod *corev1.Pod, exit launch.Exit) {
	w.t.Helper()
	said, err := json.Marshal(exit)
	w.do("encoding an exit", err)
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodSucceeded
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(said)}}}}
	})
}

// says plays a virt-handler that writes only its own facts.
func (w *world) says(vmi string, by vmistatus.Writer, f vmistatus.Facts) {
	w.t.Helper()
	f.Now = time.Now()
	w.eventually(string(by)+" to write what it knows", func() (bool, string) {
		from := w.vmi(vmi)
		to := from.DeepCopy()
		to.Status = vmistatus.Project(from, by, f)
		err := w.client.Patch(w.ctx, to, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) sourceSays(m *v1.VirtualMachineInstanceMigration, f vmistatus.SourceMigration) {
	w.t.Helper()
	f.UID = m.UID
	w.says(m.Spec.VMIName, vmistatus.Handler, vmistatus.Facts{Source: vmistatus.Known(f)})
}

func (w *world) targetSays(m *v1.VirtualMachineInstanceMigration, f vmistatus.TargetMigration) {
	w.t.Helper()
	f.UID = m.UID
	w.says(m.Spec.VMIName, vmistatus.TargetHandler, vmistatus.Facts{Target: vmistatus.Known(f)})
}

// bringTo plays all other parts until a migration is in a phase, and returns its target pod.
func (w *world) bringTo(m *v1.VirtualMachineInstanceMigration, phase v1.VirtualMachineInstanceMigrationPhase, node string) *corev1.Pod {
	w.t.Helper()
	target := w.awaitTarget(m)
	w.awaitMigration(m.Name, v1.MigrationScheduling)
	for _, step := range []struct {
		to v1.VirtualMachineInstanceMigrationPhase
		by func()
	}{
		{v1.MigrationScheduling, func() {}},
		{v1.MigrationPreparingTarget, func() { w.bindTo(target, node); w.startContainer(target) }},
		{v1.MigrationTargetReady, func() { w.targetSays(m, vmistatus.TargetMigration{Address: "10.0.0.2:49152"}) }},
		{v1.MigrationRunning, func() { w.sourceSays(m, vmistatus.SourceMigration{Begins: true}) }},
	} {
		step.by()
		w.awaitMigration(m.Name, step.to)
		if step.to == phase {
			break
		}
	}
	return target
}

// phasesOfMigrations are the phases in which a migration can fail.
var phasesOfMigrations = []v1.VirtualMachineInstanceMigrationPhase{
	v1.MigrationScheduling, v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning,
}

// The guest must run at the source, and the migration have left nothing.
func (w *world) awaitStaying(name string, source, target *corev1.Pod) {
	w.t.Helper()
	w.eventually("nothing to be left of the migration", func() (bool, string) {
		vmi := w.vmi(name)
		_, labeled := vmi.Labels[v1.MigrationTargetNodeNameLabel]
		_, only := vmi.Status.ActivePods[source.UID]
		return vmi.Status.Phase == v1.Running && vmi.Status.NodeName == testNode && !labeled && only && len(vmi.Status.ActivePods) == 1 && w.deleting(target),
			fmt.Sprintf("labels %v, status %+v, target deleted: %v", vmi.Labels, vmi.Status, w.deleting(target))
	})
	if w.deleting(source) {
		w.t.Error("the guest's pod is being deleted")
	}
}

func TestAMigrationFromItsBeginningToItsEndAndBack(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	source := w.run("vmi")
	for i, node := range []string{otherNode, testNode, otherNode} {
		m := w.migrate(fmt.Sprintf("move-%d", i), "vmi")
		target := w.bringTo(m, v1.MigrationTargetReady, node)
		w.expectHandedOver(source, target, node)
		w.sourceSays(m, vmistatus.SourceMigration{Begins: true})
		w.awaitMigration(m.Name, v1.MigrationRunning)
		w.targetSays(m, vmistatus.TargetMigration{Runs: true})
		m = w.awaitMigration(m.Name, v1.MigrationSucceeded)
		if !m.Status.MigrationState.Completed {
			t.Fatalf("migration %d says %+v", i, m.Status.MigrationState)
		}
		w.expectArrived(target, node)
		w.endContainer(source, launch.Exit{Reason: launch.ReasonMigrated})
		w.awaitPodDeletion(source)
		w.removePod(source)
		w.eventually("the source pod to be forgotten", func() (bool, string) {
			pods := w.vmi("vmi").Status.ActivePods
			return len(pods) == 1 && pods[target.UID] == node, fmt.Sprint(pods)
		})
		source = target
	}
	// The guest's end counts in the pod in which it is.
	w.endContainer(source, launch.Exit{Reason: launch.ReasonGuestShutdown, Incoming: launch.IncomingRan})
	w.awaitPhase("vmi", v1.Succeeded)
	w.awaitSettled() // a finalizer goes after the phase has been written
	for i := range 3 {
		if m := w.migration(fmt.Sprintf("move-%d", i)); m.Status.Phase != v1.MigrationSucceeded || len(m.Finalizers) > 0 {
			t.Errorf("migration %d is in phase %s, with %v", i, m.Status.Phase, m.Finalizers)
		}
	}
	if refused := slices.DeleteFunc(w.writes.of(w.namespace), func(s string) bool { return !strings.HasSuffix(s, " 422") && !strings.HasSuffix(s, " 403") }); len(refused) > 0 {
		t.Errorf("the API server refused %q", refused)
	}
}

func (w *world) expectHandedOver(source, target *corev1.Pod, node string) {
	w.t.Helper()
	vmi := w.vmi("vmi")
	ms := vmi.Status.MigrationState
	if ms.SourcePod != source.Name || ms.TargetPod != target.Name || ms.SourceNode == node || ms.TargetNode != node || vmi.Labels[v1.MigrationTargetNodeNameLabel] != node {
		w.t.Fatalf("on its way to %s the migration is %+v, labels %v", node, ms, vmi.Labels)
	}
	if launcherpod.CurrentName(vmi) != source.Name || len(vmi.Status.ActivePods) != 2 {
		w.t.Fatalf("on its way to %s the guest is in %s, active pods %v", node, launcherpod.CurrentName(vmi), vmi.Status.ActivePods)
	}
}

func (w *world) expectArrived(target *corev1.Pod, node string) {
	w.t.Helper()
	vmi := w.vmi("vmi")
	if _, labeled := vmi.Labels[v1.MigrationTargetNodeNameLabel]; labeled || vmi.Labels[v1.NodeNameLabel] != node || vmi.Status.NodeName != node {
		w.t.Fatalf("moved to %s, the VMI is on %s, labels %v", node, vmi.Status.NodeName, vmi.Labels)
	}
	if launcherpod.CurrentName(vmi) != target.Name {
		w.t.Fatalf("moved to %s, the guest is in %s", node, launcherpod.CurrentName(vmi))
	}
	w.do("reading the target pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(target), target))
	if gate := podstatus.Condition(target, launcherpod.GuestGate); gate == nil || gate.Status != corev1.ConditionTrue {
		w.t.Errorf("the gate of the pod in which the guest runs is %+v", gate)
	}
	if since := target.Annotations[v1.MigrationTargetReadyTimestamp]; target.Labels[v1.NodeNameLabel] != node || since == "" {
		w.t.Errorf("network plugins read of the pod that it is on %q and ready since %q", target.Labels[v1.NodeNameLabel], since)
	}
}

// A migration must cost the API server no more writes than it has steps.
func TestTheWritesOfAMigration(t *testing.T) {
	w := newWorld(t, clockStands)
	w.createVMI("vmi")
	source := w.run("vmi")
	w.awaitSettled()
	before := w.writes.of(w.namespace)
	m := w.migrate("move", "vmi")
	w.bringTo(m, v1.MigrationRunning, otherNode)
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	w.endContainer(source, launch.Exit{Reason: launch.ReasonMigrated})
	w.awaitPodDeletion(source)
	w.awaitSettled()
	counts := map[string]int{}
	for _, write := range w.writes.of(w.namespace)[len(before):] {
		if !strings.Contains(write, "events") {
			counts[write]++
		}
	}
	for write, most := range map[string]int{
		"POST pods": 1, "PATCH pods/status": 1, "DELETE pods": 1,
		// Target ready, switched over, source cleared.
		"PATCH virtualmachineinstances": 3,
		// Scheduling, PreparingTarget, TargetReady, Running, Succeeded; the finalizer.
		"PATCH virtualmachineinstancemigrations/status": 5, "PATCH virtualmachineinstancemigrations": 1,
	} {
		if counts[write] != most {
			t.Errorf("%d times %s, want %d", counts[write], write, most)
		}
		delete(counts, write)
	}
	for write := range counts {
		if !strings.HasSuffix(write, " 409") {
			t.Errorf("%s was not expected", write)
		}
	}
}

func TestAMigrationThatIsCancelledInEachPhase(t *testing.T) {
	w := newWorld(t)
	for i, phase := range phasesOfMigrations {
		name := fmt.Sprintf("vmi-%d", i)
		w.createVMI(name)
		source := w.run(name)
		m := w.migrate("move-"+name, name)
		target := w.bringTo(m, phase, otherNode)
		w.do("canceling", w.client.Delete(w.ctx, m))
		if phase == v1.MigrationRunning {
			w.awaitAbort(name)
			w.sourceSays(m, vmistatus.SourceMigration{Failure: "aborted", Abort: v1.MigrationAbortSucceeded})
		}
		w.awaitStaying(name, source, target)
		if phase != v1.MigrationScheduling { // without a node it is deleted at once
			w.finishPod(target)
		}
		w.awaitMigrationGone(m.Name)
		if ms := w.vmi(name).Status.MigrationState; ms != nil && (!ms.Failed || ms.AbortStatus != v1.MigrationAbortSucceeded) {
			t.Errorf("canceled in phase %s: %+v", phase, ms)
		}
	}
}

func TestATargetPodThatVanishesInEachPhase(t *testing.T) {
	w := newWorld(t)
	for i, phase := range phasesOfMigrations {
		name := fmt.Sprintf("vmi-%d", i)
		w.createVMI(name)
		source := w.run(name)
		m := w.migrate("move-"+name, name)
		target := w.bringTo(m, phase, otherNode)
		w.removePod(target)
		if phase == v1.MigrationRunning {
			w.awaitAbort(name)
			w.sourceSays(m, vmistatus.SourceMigration{Failure: "the target is gone", Abort: v1.MigrationAbortSucceeded})
		}
		m = w.awaitMigration(m.Name, v1.MigrationFailed)
		if m.Status.MigrationState == nil || m.Status.MigrationState.FailureReason == "" {
			t.Errorf("in phase %s it failed without a reason: %+v", phase, m.Status)
		}
		w.awaitStaying(name, source, target)
		// It must not be made again.
		w.awaitSettled()
		for _, pod := range w.pods() {
			if pod.Name == target.Name {
				t.Errorf("in phase %s the target pod was made again", phase)
			}
		}
	}
}

// Two leaders at once, because each world's loops serve all namespaces.
func TestTwoLeadersMigrateTogether(t *testing.T) {
	w := newWorld(t)
	newWorld(t)
	w.createVMI("vmi")
	source := w.run("vmi")
	for i, node := range []string{otherNode, testNode} {
		m := w.migrate(fmt.Sprintf("move-%d", i), "vmi")
		target := w.bringTo(m, v1.MigrationRunning, node)
		w.targetSays(m, vmistatus.TargetMigration{Runs: true})
		w.awaitMigration(m.Name, v1.MigrationSucceeded)
		w.endContainer(source, launch.Exit{Reason: launch.ReasonMigrated})
		w.awaitPodDeletion(source)
		w.removePod(source)
		source = target
	}
	w.awaitSettled()
	vmi := w.vmi("vmi")
	if pods := w.pods(); len(pods) != 1 || pods[0].Name != launcherpod.CurrentName(vmi) || vmi.Status.NodeName != testNode {
		t.Errorf("the guest is in %s on %s; there are %d pods", launcherpod.CurrentName(vmi), vmi.Status.NodeName, len(pods))
	}
}

// virt-controller may die in each phase.
func TestMigrationsGoOnWithTheNextLeader(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	source := w.run("vmi")
	m := w.migrate("move", "vmi")
	w.restartLoops()
	target := w.awaitTarget(m)
	w.restartLoops()
	w.bindTo(target, otherNode)
	w.startContainer(target)
	w.restartLoops()
	w.awaitMigration(m.Name, v1.MigrationPreparingTarget)
	w.restartLoops()
	w.targetSays(m, vmistatus.TargetMigration{Address: "10.0.0.2:49152"})
	w.restartLoops()
	w.sourceSays(m, vmistatus.SourceMigration{Begins: true})
	w.restartLoops()
	w.stop()
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.endContainer(source, launch.Exit{Reason: launch.ReasonMigrated})
	w.startLoops()
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	w.awaitPodDeletion(source)
	if vmi := w.vmi("vmi"); vmi.Status.NodeName != otherNode || vmi.Status.Phase != v1.Running {
		t.Errorf("the VMI is in phase %s on %s", vmi.Status.Phase, vmi.Status.NodeName)
	}
}

// allow sets the limits of parallel migrations.
func (w *world) allow(cluster, node uint32) {
	w.t.Helper()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: w.namespace}}
	kv.Spec.Configuration.MigrationConfiguration = &v1.MigrationConfiguration{ParallelMigrationsPerCluster: &cluster, ParallelOutboundMigrationsPerNode: &node}
	if err := w.client.Create(w.ctx, kv); apierrors.IsAlreadyExists(err) {
		patch := fmt.Sprintf(`{"spec":{"configuration":{"migrations":{"parallelMigrationsPerCluster":%d,"parallelOutboundMigrationsPerNode":%d}}}}`, cluster, node)
		w.do("changing the limits", w.client.Patch(w.ctx, kv, client.RawPatch(types.MergePatchType, []byte(patch))))
	} else {
		w.do("setting the limits", err)
	}
}

func TestNoMoreMigrateAtATimeThanIsAllowed(t *testing.T) {
	w := newWorld(t)
	w.allow(5, 1)
	w.t.Cleanup(func() {
		_ = w.client.Delete(w.cleanup(), &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: w.namespace}})
	})
	w.seesKubeVirt()
	names := []string{"a", "b", "c"}
	sources := map[string]*corev1.Pod{}
	for _, name := range names {
		w.createVMI(name)
		sources[name] = w.run(name)
	}
	for _, name := range names {
		w.migrate("move-"+name, name)
	}
	begun := func() (running, waiting []*v1.VirtualMachineInstanceMigration) {
		for _, name := range names {
			m := w.migration("move-" + name)
			c := condition.Find(m.Status.Conditions, migration.ConditionWaiting)
			switch {
			case m.TargetIsCreated() && !m.IsFinal():
				running = append(running, m)
			case c != nil && c.Reason == migration.ReasonNodeLimit:
				waiting = append(waiting, m)
			}
		}
		return running, waiting
	}
	for left := len(names); left > 0; left-- {
		var running []*v1.VirtualMachineInstanceMigration
		w.eventually("one to run and the others to wait", func() (bool, string) {
			var waiting []*v1.VirtualMachineInstanceMigration
			running, waiting = begun()
			return len(running) == 1 && len(waiting) == left-1, fmt.Sprintf("%d run, %d wait", len(running), len(waiting))
		})
		m := running[0]
		w.bringTo(m, v1.MigrationRunning, otherNode)
		if running, _ := begun(); len(running) != 1 {
			t.Fatalf("%d migrations leave one node", len(running))
		}
		w.targetSays(m, vmistatus.TargetMigration{Runs: true})
		w.awaitMigration(m.Name, v1.MigrationSucceeded)
	}
}

// A VMI that is deleted during a migration must stay until both pods have ended.
func TestAVMIThatIsDeletedWhileItMigrates(t *testing.T) {
	w := newWorld(t)
	for i, phase := range phasesOfMigrations {
		name := fmt.Sprintf("vmi-%d", i)
		w.createVMI(name)
		source := w.run(name)
		m := w.migrate("move-"+name, name)
		target := w.bringTo(m, phase, otherNode)
		w.do("deleting the VMI", w.client.Delete(w.ctx, w.vmi(name)))
		if phase == v1.MigrationRunning {
			w.eventually("the source to be asked", func() (bool, string) {
				return w.vmi(name).Status.MigrationState.AbortRequested, "it is not"
			})
		}
		w.phase(name, v1.Succeeded) // the source's virt-handler has ended the guest
		w.endContainer(source, launch.Exit{Reason: launch.ReasonHostShutdown})
		if phase == v1.MigrationRunning {
			w.awaitSettled()
			if w.vmi(name) == nil {
				t.Errorf("in phase %s the VMI is gone, and its target is not", phase)
			}
		}
		w.eventually("the target pod to be deleted", func() (bool, string) { return w.deleting(target), "it is not" })
		if phase != v1.MigrationScheduling {
			w.finishPod(target)
		}
		w.awaitGone(name)
		if m := w.awaitMigration(m.Name, v1.MigrationFailed); m.Status.MigrationState.FailureReason == "" {
			t.Errorf("in phase %s it failed without a reason", phase)
		}
	}
}

// Another pod may have the name of a target pod, and a deleted migration may have left its pod.
func TestPodsThatAreNotAMigrations(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	source := w.run("vmi")
	w.stop()
	m := w.migrate("move", "vmi")
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: launcherpod.TargetName(w.vmi("vmi"), m.UID)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}
	w.do("taking the name", w.client.Create(w.ctx, foreign))
	w.startLoops()
	m = w.awaitMigration("move", v1.MigrationFailed)
	if w.deleting(foreign) || !strings.Contains(m.Status.MigrationState.FailureReason, foreign.Name) {
		t.Errorf("the pod of somebody else's is deleted: %v; the reason is %q", w.deleting(foreign), m.Status.MigrationState.FailureReason)
	}

	next := w.migrate("next", "vmi")
	target := w.bringTo(next, v1.MigrationScheduling, otherNode)
	w.stop()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	w.do("taking the finalizer off", w.client.Patch(w.ctx, next.DeepCopy(), patch))
	w.do("deleting the migration", w.client.Delete(w.ctx, next))
	w.startLoops()
	w.awaitPodDeletion(target)
	if w.deleting(source) {
		t.Error("the guest's pod is being deleted")
	}
}

// A migration's finalizer is removed by hand, so that it vanishes without having been canceled. It must be canceled
// then.
func TestAMigrationThatVanishesInEachPhase(t *testing.T) {
	w := newWorld(t)
	unfinished := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for i, phase := range phasesOfMigrations {
		name := fmt.Sprintf("vmi-%d", i)
		w.createVMI(name)
		source := w.run(name)
		m := w.migrate("move-"+name, name)
		target := w.bringTo(m, phase, otherNode)
		w.stop()
		w.do("taking the finalizer off", w.client.Patch(w.ctx, m.DeepCopy(), unfinished))
		w.do("deleting the migration", w.client.Delete(w.ctx, m))
		w.startLoops()
		if phase == v1.MigrationRunning {
			w.awaitAbort(name)
			w.sourceSays(m, vmistatus.SourceMigration{Failure: "aborted", Abort: v1.MigrationAbortSucceeded})
		}
		w.awaitStaying(name, source, target)
		if ms := w.vmi(name).Status.MigrationState; ms != nil && (!ms.Failed || ms.AbortStatus != v1.MigrationAbortSucceeded) {
			t.Errorf("gone in phase %s: %+v", phase, ms)
		}
	}
}

func TestOfTheMigrationsThatHaveEndedTheNewestStay(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	w.run("vmi")
	// Of those that end in the same second the names decide: the later ones come first.
	for i := 9; i > 2; i-- {
		m := w.migrate(fmt.Sprintf("ended-%d", i), "vmi")
		w.removePod(w.awaitTarget(m))
		w.awaitMigration(m.Name, v1.MigrationFailed)
	}
	w.awaitMigrationGone("ended-9")
	w.awaitMigrationGone("ended-8")
	w.awaitSettled()
	for i := 3; i < 8; i++ {
		if name := fmt.Sprintf("ended-%d", i); w.migration(name) == nil {
			t.Errorf("%s is gone", name)
		}
	}
}

// The migration must report the quota, and the guest stay.
func TestATargetPodThatAQuotaRefuses(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	source := w.run("vmi")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: w.namespace},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}}
	w.do("setting a quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		used := quota.Status.Used[corev1.ResourcePods]
		return used.Value() == 1, used.String()
	})
	m := w.migrate("move", "vmi")
	w.eventually("the refusal to be said", func() (bool, string) {
		m = w.migration("move")
		c := condition.Find(m.Status.Conditions, v1.VirtualMachineInstanceMigrationRejectedByResourceQuota)
		return c != nil && m.Status.Phase == v1.MigrationPending && strings.Contains(c.Message, "exceeded quota"), fmt.Sprintf("%+v", m.Status)
	})
	w.do("canceling", w.client.Delete(w.ctx, m))
	w.awaitMigrationGone("move")
	if vmi := w.vmi("vmi"); w.deleting(source) || vmi.Status.MigrationState != nil {
		t.Errorf("the guest's pod is being deleted: %v; the VMI says %+v", w.deleting(source), vmi.Status.MigrationState)
	}
}

// A source pod that was deleted by force after it sent its guest may run on until its kubelet ends it. Its absence must
// not count as the guest's end.
func TestASourcePodThatVanishesWhileItsGuestMoves(t *testing.T) {
	w := newWorld(t)
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.createVMI("vmi")
	source := w.run("vmi")
	m := w.migrate("move", "vmi")
	target := w.bringTo(m, v1.MigrationRunning, otherNode)
	w.removePod(source)
	w.awaitReady("vmi", corev1.ConditionFalse, v1.PodNotExistsReason)
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration("move", v1.MigrationSucceeded)
	w.awaitReady("vmi", corev1.ConditionFalse, v1.GuestNotRunningReason)
	vmi := w.vmi("vmi")
	if _, named := vmi.Status.ActivePods[source.UID]; vmi.Status.Phase != v1.Running || vmi.Status.NodeName != otherNode || !named || w.deleting(target) {
		t.Errorf("the VMI is in phase %s on %s with %v", vmi.Status.Phase, vmi.Status.NodeName, vmi.Status.ActivePods)
	}
}
