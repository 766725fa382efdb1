//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// drainTime bounds a drain whose guests can all leave, on a busy machine.
const drainTime = "280s"

// rolloutTime bounds the rollout of one of Drydock's own workloads, on a busy machine.
const rolloutTime = "280s"

func evictable(vm *v1.VirtualMachine) *v1.VirtualMachine {
	vm.Spec.Template.Spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
	return vm
}

// preferring makes a VM prefer a node for its start, and leaves it free to move later.
func preferring(vm *v1.VirtualMachine, node string) *v1.VirtualMachine {
	vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return vm
}

// drained has the VMs of TestDrain, on one node, and the boot ID of the movable one.
type drained struct {
	ns       string
	selector string
	boot     string
}

// newDrained starts two guests on node1: a movable one with a hotplugged shared disk, and an immovable one with a
// hotplugged local disk.
func newDrained(t *testing.T) *drained {
	t.Helper()
	d := &drained{ns: newNamespace(t)}
	d.selector = "drain=" + d.ns
	plugs := map[string]string{"moves": "shared", "stays": "plugged"}
	for name := range plugs {
		vm := newMigratableVM(t, d.ns, name)
		vm.Spec.Template.ObjectMeta.Labels = map[string]string{"drain": d.ns, "vm": name}
		create(t, preferring(evictable(vm), node1))
	}
	claim(t, d.ns, "plugged", corev1.PersistentVolumeFilesystem, folderOnNode1(d.ns, "plugged"))
	shared := claimOfClass(d.ns, "shared", classShared, corev1.PersistentVolumeFilesystem)
	shared.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, shared)

	for name, volume := range plugs {
		if on := awaitRunning(t, d.ns, name).Status.NodeName; on != node1 {
			t.Fatalf("%s runs on %s, want %s", name, on, node1)
		}
		g := login(t, d.ns, name)
		awaitMigratable(t, d.ns, name)
		if name == "moves" {
			d.boot = g.bootID()
		}
		do(t, d.ns, "addvolume", name, "--volume-name="+volume)
		g.gets(volume)
	}
	return d
}

// stays is what a drain says of the immovable guest. The reason also prevents a manual migration.
func (d *drained) stays(t *testing.T) string {
	t.Helper()
	if err := cluster.client.Create(t.Context(), newMigration(d.ns, "stays")); err == nil || !strings.Contains(err.Error(), "cannot migrate VMI") {
		t.Errorf("a migration of a guest that can't be migrated: the answer is %v", err)
	}
	return `VMI "` + d.ns + `/stays" has the evictionStrategy LiveMigrate and can't be migrated: PVC plugged is not shared`
}

// hasMoved waits until the movable guest is on node2, and checks that it never stopped.
func (d *drained) hasMoved(t *testing.T) {
	t.Helper()
	vmi := awaitVMI(t, d.ns, "moves", "the other node", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName == node2 && vmi.Status.EvacuationNodeName == ""
	})
	awaitOneLauncher(t, vmi, node2)
	g := login(t, d.ns, "moves")
	if g.bootID() != d.boot {
		t.Error("the guest was started again")
	}
	g.gets("shared")
	startedOnce(t, d.ns, "moves")
}

// TestDrain drains a node with two guests, and kills virt-controller while one migrates. That guest must run on on
// the other node. The drain must name the immovable guest, and exit with 0 once that guest is stopped. The rules and
// the API server's tests decide which guest moves; here the real kubectl evicts real pods. Not parallel: other tests
// need the node.
func TestDrain(t *testing.T) {
	d := newDrained(t)
	warnsOfNothing(t, d.ns)
	cordon(t, node1) // and uncordon at the end
	out := drainUntil(t, node1, d.selector, func(said *transcript) {
		awaitVMI(t, d.ns, "moves", "the migration to have begun", func(vmi *v1.VirtualMachineInstance) bool {
			return vmi.Status.MigrationState != nil && vmi.Status.MigrationState.StartTimestamp != nil
		})
		killController(t)
		said.await(t, "the drain", d.stays(t))
	})
	t.Logf("a drain says\n%s", out)

	do(t, d.ns, "stop", "stays")
	began := time.Now()
	if out, err := drain(t, node1, d.selector); err != nil {
		t.Fatalf("the drain has ended with: %v\n%s", err, out)
	}
	t.Logf("the drain has ended with 0 %v after the guest was stopped", time.Since(began).Round(time.Second))
	d.hasMoved(t)
}

// TestADrainWithoutVirtAPI evicts a guest that must wait for its turn, and cancels the drain. Then it scales virt-api
// to zero and evicts again: the budget keeps the guest's pod, and all other pods go, whatever their names are. With
// virt-api back, the same drain must go on. Only the real disruption controller counts. Not parallel: other tests
// need the nodes and virt-api.
func TestADrainWithoutVirtAPI(t *testing.T) {
	ns := newNamespace(t)
	g := bootVM(t, preferring(evictable(newMigratableVM(t, ns, "kept")), node1))
	s := staying{vmi: awaitMigratable(t, ns, "kept"), bootID: g.bootID(), budgets: budgets(t, ns)}
	inTurn(t,
		chapter{"the drain is taken back", func(t *testing.T) { drainIsTakenBack(t, s.in(t)) }},
		chapter{"virt-api is away", func(t *testing.T) { drainsWithoutVirtAPI(t, s.in(t)) }},
	)
}

func drainsWithoutVirtAPI(t *testing.T, s *staying) {
	t.Helper()
	vmi, ns := s.vmi, s.vmi.Namespace
	own := v1.CreatedByLabel + "=" + string(vmi.UID)
	users := toolsPod(ns, "virt-launcher-kept-users")
	create(t, users)
	await(t, users, &corev1.PodList{}, "phase Running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	if refused := cluster.client.Update(t.Context(), withLabels(users, map[string]string{v1.AppLabel: "virt-launcher", launcherpod.KeptLabel: ""})); refused == nil {
		t.Error("a user's pod is given the labels that the budget selects by")
	}

	cordon(t, vmi.Status.NodeName) // and uncordon at the end
	back := scale(t, "virt-api", 0)
	drainUntil(t, vmi.Status.NodeName, own, untilItSays(t, "disruption budget"))
	evict(t, users)
	awaitGone(t, users)
	if again := awaitRunning(t, ns, "kept"); again.UID != vmi.UID || again.Status.NodeName != vmi.Status.NodeName {
		t.Errorf("the guest is now %s on %s", again.UID, again.Status.NodeName)
	}
	back()
	if out, err := drain(t, vmi.Status.NodeName, own); err != nil {
		t.Fatalf("with virt-api back the drain has ended with: %v\n%s", err, out)
	}
	moved := awaitVMI(t, ns, "kept", "the other node", func(now *v1.VirtualMachineInstance) bool { return now.Status.NodeName != vmi.Status.NodeName })
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	if login(t, ns, "kept").bootID() != s.bootID {
		t.Error("the guest was started again")
	}
}

func withLabels(pod *corev1.Pod, labels map[string]string) *corev1.Pod {
	out := pod.DeepCopy()
	out.Labels = labels
	return out
}

// scale scales virt-api or virt-controller. back restores the old number; so does the end of the test.
func scale(t *testing.T, name string, replicas int32) (back func()) {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: name}}
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	before := *deployment.Spec.Replicas
	set := func(n int32) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := cluster.client.Patch(context.WithoutCancel(t.Context()), deployment, patch); err != nil {
			t.Fatalf("having %d %s: %v", n, name, err)
		}
	}
	await := func(n int) {
		eventually(t, fmt.Sprintf("%d %s", n, name), func(ctx context.Context) error {
			var pods corev1.PodList
			if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: name}); err != nil {
				return err
			}
			ready := 0
			for i := range pods.Items {
				if podReady(&pods.Items[i]) {
					ready++
				}
			}
			if ready != n || n == 0 && len(pods.Items) > 0 {
				return fmt.Errorf("%d pods, %d ready", len(pods.Items), ready)
			}
			return nil
		})
	}
	back = sync.OnceFunc(func() { set(before); await(int(before)) })
	t.Cleanup(back)
	set(replicas)
	await(int(replicas))
	return back
}

// drainIsTakenBack cordons the node, evicts a guest that must wait for its turn, and uncordons or cancels the
// evacuation. The guest must stay, and no object may be left that would move it.
func drainIsTakenBack(t *testing.T, s *staying) {
	t.Helper()
	vmi, ns := s.vmi, s.vmi.Namespace
	// On two nodes no target pod finds a node while both are cordoned.
	uncordon, uncordonOther := cordon(t, vmi.Status.NodeName), cordon(t, otherThan(vmi.Status.NodeName))
	for what, takeBack := range map[string]func(){
		"evacuate-cancel": func() { do(t, ns, "evacuate-cancel", "vm", "kept") }, "uncordon": uncordon,
	} {
		drainUntil(t, vmi.Status.NodeName, v1.CreatedByLabel+"="+string(vmi.UID), func(*transcript) {
			awaitVMI(t, ns, "kept", "the mark", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName != "" })
		})
		takeBack()
		awaitVMI(t, ns, "kept", "no mark after "+what, func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName == "" })
		cordon(t, vmi.Status.NodeName)
	}
	eventually(t, "no migration that would move it", func(ctx context.Context) error {
		var list v1.VirtualMachineInstanceMigrationList
		if err := cluster.client.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		if n := len(list.Items); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	uncordon()
	uncordonOther()
	s.goesOn()
}

func otherThan(node string) string {
	if node == node1 {
		return node2
	}
	return node1
}

func awaitMigratable(t *testing.T, ns, name string) *v1.VirtualMachineInstance {
	t.Helper()
	return awaitVMI(t, ns, name, "LiveMigratable", func(vmi *v1.VirtualMachineInstance) bool {
		return condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	})
}
