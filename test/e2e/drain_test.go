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

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/launcherpod"
)

// drainTime is how long a drain may take whose guests can all leave, on a busy machine.
const drainTime = "280s"

// rolloutTime is how long one of Drydock's own workloads may take to be rolled out, on a busy machine.
const rolloutTime = "280s"

// evictable is a VM that says what becomes of its guest when its pod is evicted.
func evictable(vm *v1.VirtualMachine, strategy v1.EvictionStrategy) *v1.VirtualMachine {
	vm.Spec.Template.Spec.EvictionStrategy = &strategy
	return vm
}

// preferring has a VM start on a node if it can, and be free to leave it.
func preferring(vm *v1.VirtualMachine, node string) *v1.VirtualMachine {
	vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return vm
}

// drained are the VMs of TestDrain, on one node, by the names of their guests.
type drained struct {
	ns       string
	selector string
	boots    map[string]string
}

// newDrained starts five guests on node1: two that can move, one of them with a hotplugged disk that is shared, one
// with a hotplugged disk of the node, one that can't move, and one that somebody else looks after.
func newDrained(t *testing.T) *drained {
	t.Helper()
	d := &drained{ns: newNamespace(t), boots: map[string]string{}}
	d.selector = "drain=" + d.ns
	start := func(vm *v1.VirtualMachine, strategy v1.EvictionStrategy) {
		vm.Spec.Template.ObjectMeta.Labels = map[string]string{"drain": d.ns, "vm": vm.Name}
		create(t, preferring(evictable(vm, strategy), node1))
	}
	moving := map[string]v1.EvictionStrategy{"always": v1.EvictionStrategyLiveMigrate, "can": v1.EvictionStrategyLiveMigrateIfPossible}
	for name, strategy := range moving {
		start(newMigratableVM(t, d.ns, name), strategy)
	}
	held := newVMI(d.ns, "held")
	held.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	held.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}}
	start(newVM(held, v1.RunStrategyAlways), v1.EvictionStrategyLiveMigrate)
	start(newVM(newVMI(d.ns, "external"), v1.RunStrategyAlways), v1.EvictionStrategyExternal)
	claim(t, d.ns, "plugged", corev1.PersistentVolumeFilesystem, folderOnNode1(d.ns, "plugged"))
	start(newMigratableVM(t, d.ns, "hotplugged"), v1.EvictionStrategyLiveMigrate)
	shared := claimOfClass(d.ns, "shared", classShared, corev1.PersistentVolumeFilesystem)
	shared.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, shared)

	for _, name := range []string{"always", "can", "held", "external", "hotplugged"} {
		if on := awaitRunning(t, d.ns, name).Status.NodeName; on != node1 {
			t.Fatalf("%s runs on %s, want %s", name, on, node1)
		}
		g := login(t, d.ns, name)
		if _, moves := moving[name]; moves {
			g.count()
			d.boots[name] = g.bootID()
			awaitMigratable(t, d.ns, name)
		}
		if plugged := map[string]string{"always": "shared", "hotplugged": "plugged"}[name]; plugged != "" {
			do(t, d.ns, "addvolume", name, "--volume-name="+plugged)
			g.gets(plugged)
		}
	}
	return d
}

// says checks that what a drain has printed names each guest that stays, with the reason.
func (d *drained) says(t *testing.T, out string) {
	t.Helper()
	for name, says := range map[string]string{
		"held":       `VMI "` + d.ns + `/held" has the evictionStrategy LiveMigrate and can't be migrated: interface default gives the guest the pod's own address`,
		"hotplugged": `VMI "` + d.ns + `/hotplugged" has the evictionStrategy LiveMigrate and can't be migrated: PVC plugged is not shared`,
		"external":   `Eviction triggered evacuation of VMI "` + d.ns + `/external": its evictionStrategy is External`,
	} {
		if !strings.Contains(out, says) {
			t.Errorf("the drain does not say of %s %q:\n%s", name, says, out)
		}
	}
}

// haveMoved waits until the guests that can move are on node2, and have never stopped.
func (d *drained) haveMoved(t *testing.T) {
	t.Helper()
	for name, boot := range d.boots {
		vmi := awaitVMI(t, d.ns, name, "the other node", func(vmi *v1.VirtualMachineInstance) bool {
			return vmi.Status.NodeName == node2 && vmi.Status.EvacuationNodeName == ""
		})
		awaitOneLauncher(t, vmi, node2)
		g := login(t, d.ns, name)
		if g.bootID() != boot {
			t.Errorf("%s was started again", name)
		}
		if name == "always" {
			g.gets("shared")
		}
		startedOnce(t, d.ns, name)
	}
}

// TestDrain drains a node with five guests, and kills virt-controller while they migrate:
// those that can move go on on the other node, the drain names the others, and ends with 0
// when they have been stopped. Not parallel: the others need the node.
func TestDrain(t *testing.T) {
	d := newDrained(t)
	cordon(t, node1) // and uncordon at the end
	type ended struct {
		out string
		err error
	}
	first := make(chan ended, 1)
	go func() {
		out, err := drain(t, node1, d.selector, "20s")
		first <- ended{out, err}
	}()
	awaitVMI(t, d.ns, "always", "the migration to have begun", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.MigrationState != nil && vmi.Status.MigrationState.StartTimestamp != nil
	})
	killController(t)
	got := <-first
	t.Logf("a drain says\n%s", got.out)
	if got.err == nil {
		t.Error("the drain of guests that stay has ended with 0")
	}
	d.says(t, got.out)
	awaitVMI(t, d.ns, "external", "the mark", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName == node1 })

	for _, name := range []string{"held", "external", "hotplugged"} {
		do(t, d.ns, "stop", name)
	}
	began := time.Now()
	if out, err := drain(t, node1, d.selector, drainTime); err != nil {
		t.Fatalf("the drain has ended with: %v\n%s", err, out)
	}
	t.Logf("the drain has ended with 0 %v after the last guest was stopped", time.Since(began).Round(time.Second))
	d.haveMoved(t)
}

// TestADrainWithoutVirtAPI takes every virt-api away, and evicts: a guest's pod is kept by its
// budget, and all other pods are evicted, whatever their names are. With virt-api back the same
// drain goes on. Not parallel: the others need virt-api.
func TestADrainWithoutVirtAPI(t *testing.T) {
	ns := newNamespace(t)
	g := bootVM(t, preferring(evictable(newMigratableVM(t, ns, "kept"), v1.EvictionStrategyLiveMigrate), node1))
	awaitMigratable(t, ns, "kept")
	vmi, bootID := awaitRunning(t, ns, "kept"), g.bootID()
	own := v1.CreatedByLabel + "=" + string(vmi.UID)
	users := toolsPod(ns, "virt-launcher-kept-users")
	create(t, users)
	await(t, users, &corev1.PodList{}, "phase Running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	if refused := cluster.client.Update(t.Context(), withLabels(users, map[string]string{v1.AppLabel: "virt-launcher", launcherpod.KeptLabel: ""})); refused == nil {
		t.Error("a user's pod is given the labels that the budget selects by")
	}

	cordon(t, vmi.Status.NodeName) // and uncordon at the end
	back := scaleAPI(t, 0)
	if out, err := drain(t, vmi.Status.NodeName, own, "7s"); err == nil || !strings.Contains(out, "disruption budget") {
		t.Errorf("without virt-api the drain of a guest ends with %v:\n%s", err, out)
	}
	evict(t, users)
	awaitGone(t, users)
	if again := awaitRunning(t, ns, "kept"); again.UID != vmi.UID || again.Status.NodeName != vmi.Status.NodeName {
		t.Errorf("the guest is now %s on %s", again.UID, again.Status.NodeName)
	}
	back()
	if out, err := drain(t, vmi.Status.NodeName, own, drainTime); err != nil {
		t.Fatalf("with virt-api back the drain has ended with: %v\n%s", err, out)
	}
	moved := awaitVMI(t, ns, "kept", "the other node", func(now *v1.VirtualMachineInstance) bool { return now.Status.NodeName != vmi.Status.NodeName })
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	if login(t, ns, "kept").bootID() != bootID {
		t.Error("the guest was started again")
	}
}

func withLabels(pod *corev1.Pod, labels map[string]string) *corev1.Pod {
	out := pod.DeepCopy()
	out.Labels = labels
	return out
}

// scaleAPI has so many virt-api run, and returns how to have as many again as before, at the
// latest when the test ends.
func scaleAPI(t *testing.T, replicas int32) (back func()) {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "virt-api"}}
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Fatalf("reading virt-api: %v", err)
	}
	before := *deployment.Spec.Replicas
	set := func(n int32) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := cluster.client.Patch(context.WithoutCancel(t.Context()), deployment, patch); err != nil {
			t.Fatalf("having %d virt-api: %v", n, err)
		}
	}
	await := func(n int) {
		eventually(t, fmt.Sprintf("%d virt-api", n), func(ctx context.Context) error {
			var pods corev1.PodList
			if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-api"}); err != nil {
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

// TestADrainThatIsTakenBack cordons a node, has a guest evicted that must wait for its
// turn, and uncordons or cancels the evacuation: the guest stays, and nothing is left that would move it.
func TestADrainThatIsTakenBack(t *testing.T) {
	ns := newNamespace(t)
	g := bootVM(t, preferring(evictable(newMigratableVM(t, ns, "stays"), v1.EvictionStrategyLiveMigrate), node1))
	awaitMigratable(t, ns, "stays")
	vmi, bootID := awaitRunning(t, ns, "stays"), g.bootID()
	// On a cluster of two nodes no target pod finds a node while both are cordoned.
	uncordon, uncordonOther := cordon(t, vmi.Status.NodeName), cordon(t, otherThan(vmi.Status.NodeName))
	for what, takeBack := range map[string]func(){
		"evacuate-cancel": func() { do(t, ns, "evacuate-cancel", "vm", "stays") }, "uncordon": uncordon,
	} {
		if out, err := drain(t, vmi.Status.NodeName, v1.CreatedByLabel+"="+string(vmi.UID), "1s"); err == nil {
			t.Errorf("the drain has ended with 0:\n%s", out)
		}
		awaitVMI(t, ns, "stays", "the mark", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName != "" })
		takeBack()
		awaitVMI(t, ns, "stays", "no mark after "+what, func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.EvacuationNodeName == "" })
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
	awaitOneLauncher(t, vmi, vmi.Status.NodeName)
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
}

func otherThan(node string) string {
	if node == node1 {
		return node2
	}
	return node1
}

// awaitMigratable waits until a guest is known to be able to move.
func awaitMigratable(t *testing.T, ns, name string) *v1.VirtualMachineInstance {
	t.Helper()
	return awaitVMI(t, ns, name, "LiveMigratable", func(vmi *v1.VirtualMachineInstance) bool {
		return condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	})
}
