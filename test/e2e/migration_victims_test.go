//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A victim is one guest's, and is killed or deleted while that migrates.
type victim struct {
	name string
	// with tells from when on the guest may end with it.
	with mortality
	// find returns a function that strikes the victim, or nil if it does not exist.
	find func(*testing.T, *v1.VirtualMachineInstance, types.UID) (strike func())
}

type mortality int

const (
	never mortality = iota
	// onceSent: from when the guest is on its way, it may run at the target at any moment.
	onceSent
	always
)

// The guest ends with one in six, because a restart takes a while.
func ownVictims() []victim {
	harmless := []victim{
		{"the migration", never, func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
			return deletion(t, migrationOf(t, vmi.Namespace, uid))
		}},
		{"the target's QEMU", onceSent, targetProgram("qemu-system-x86_64")},
		{"the target's virt-launcher", onceSent, targetProgram("virt-launcher")},
		{"the target's pod", onceSent, func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
			return deletion(t, targetOf(t, vmi, uid))
		}},
		{"the target's pod by force", onceSent, func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
			return deletion(t, targetOf(t, vmi, uid), client.GracePeriodSeconds(0))
		}},
	}
	mortal := []victim{
		{"the source's QEMU", always, func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
			return killing(t, sourceOf(t, vmi, uid), "qemu-system-x86_64")
		}},
		{"the source's pod by force", always, func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
			return deletion(t, sourceOf(t, vmi, uid), client.GracePeriodSeconds(0))
		}},
		{"the VMI", always, func(t *testing.T, vmi *v1.VirtualMachineInstance, _ types.UID) func() {
			return deletion(t, vmi.DeepCopy())
		}},
	}
	return slices.Concat(harmless, harmless, harmless, mortal)
}

// migrationOf returns a migration of a namespace, or nil.
func migrationOf(t *testing.T, ns string, uid types.UID) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	return migrationsIn(t, ns)[uid]
}

// migrationsIn returns the migrations of a namespace.
func migrationsIn(t *testing.T, ns string) map[types.UID]*v1.VirtualMachineInstanceMigration {
	t.Helper()
	list := &v1.VirtualMachineInstanceMigrationList{}
	if err := cluster.client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatalf("listing migrations: %v", err)
	}
	all := map[types.UID]*v1.VirtualMachineInstanceMigration{}
	for i := range list.Items {
		all[list.Items[i].UID] = &list.Items[i]
	}
	return all
}

// targetOf returns the target pod of a migration, or nil.
func targetOf(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) *corev1.Pod {
	t.Helper()
	return launcherWhere(t, vmi, func(pod *corev1.Pod) bool { return pod.Labels[v1.MigrationJobLabel] == string(uid) })
}

// sourceOf returns the pod of the guest when the migration began, or nil.
func sourceOf(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) *corev1.Pod {
	t.Helper()
	return launcherWhere(t, vmi, func(pod *corev1.Pod) bool {
		return pod.Labels[v1.MigrationJobLabel] != string(uid) && pod.Spec.NodeName == vmi.Status.NodeName
	})
}

func launcherWhere(t *testing.T, vmi *v1.VirtualMachineInstance, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	pods := launcherPods(t, vmi)
	for i := range pods {
		if is(&pods[i]) {
			return &pods[i]
		}
	}
	return nil
}

func targetProgram(program string) func(*testing.T, *v1.VirtualMachineInstance, types.UID) func() {
	return func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
		return killing(t, targetOf(t, vmi, uid), program)
	}
}

// deletion deletes an object if it still has this UID.
func deletion[T interface {
	comparable
	client.Object
}](t *testing.T, object T, options ...client.DeleteOption) func() {
	if none := *new(T); object == none {
		return nil
	}
	uid := object.GetUID()
	options = append(options, client.Preconditions{UID: &uid})
	return func() {
		// Another object has the name by now.
		if err := cluster.client.Delete(t.Context(), object, options...); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			t.Errorf("deleting %s: %v", object.GetName(), err)
		}
	}
}

// killing kills a program in a pod, if it runs there.
func killing(t *testing.T, pod *corev1.Pod, program string) func() {
	t.Helper()
	if pod == nil {
		return nil
	}
	pids := programIn(t, pod, program)
	if len(pids) == 0 {
		return nil
	}
	return func() {
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				t.Errorf("killing %s in %s: %v", program, pod.Name, err)
			}
		}
	}
}

// sharedVictim is a part of Drydock that all guests share.
type sharedVictim struct {
	name string
	// find returns functions that strike the victim and that wait until it is back.
	find func(*testing.T) (strike, back func())
}

func sharedVictims() []sharedVictim {
	return []sharedVictim{
		{"virt-handler on " + node1, handlerOn(node1)}, {"virt-handler on " + node2, handlerOn(node2)},
		{"virt-controller", func(t *testing.T) (strike, back func()) {
			return func() { killController(t) }, func() { awaitLeader(t) }
		}},
	}
}

// The kubelet restarts virt-handler in its pod.
func handlerOn(node string) func(*testing.T) (strike, back func()) {
	return func(t *testing.T) (strike, back func()) {
		t.Helper()
		pod := handlerPod(t, node)
		before := processOf(t, pod, "virt")
		return killing(t, pod, "virt"), func() { awaitHandler(t, node, before) }
	}
}

// awaitHandler waits until virt-handler on a node is ready, in a new process.
func awaitHandler(t *testing.T, node string, before int) {
	t.Helper()
	eventually(t, "another virt-handler on "+node, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-handler"}); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName != node || pod.DeletionTimestamp != nil || !podReady(pod) {
				continue
			}
			if now := programIn(t, pod, "virt"); len(now) == 1 && now[0] != before {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func awaitLeader(t *testing.T) {
	t.Helper()
	eventually(t, "a virt-controller that acts", func(ctx context.Context) error {
		var lease coordinationv1.Lease
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "kubevirt", Name: "virt-controller"}, &lease); err != nil {
			return err
		}
		var pod corev1.Pod
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "kubevirt", Name: *lease.Spec.HolderIdentity}, &pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp != nil || !podReady(&pod) {
			return fmt.Errorf("%s, which leads, is not ready", pod.Name)
		}
		return nil
	})
}
