//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	vclient "drydock.dev/drydock/internal/virtctl/client"
)

// TestANodeDiesUnderMaintenancePods kills the node of two maintenance pods, which are then deleted by force. Both
// VMs must stay locked. Only an administrator may force the unlock, and an event must name him. The other VM must
// be unlocked when the node is back: only a real kubelet reports the end of its pod. Not parallel: it takes a
// node from other tests.
func TestANodeDiesUnderMaintenancePods(t *testing.T) {
	ns := newNamespace(t)
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"kept", "forced"} {
		claimOn(t, ns, name, node2)
		vm := newVM(newVMI(ns, name), v1.RunStrategyHalted)
		addClaimDisk(vm, "data", onClaim(name))
		create(t, vm)
		pod := maintainer(ns, "holds-"+name, "exec sleep 1000")
		pod.Labels[layout.MaintenanceForLabel] = name
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name
		create(t, pod)
		pods[name] = pod
	}
	for _, pod := range pods {
		awaitPod(t, pod, "its container", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	start := killNode2(t)
	for _, pod := range pods {
		if err := cluster.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatalf("deleting the pod %s by force: %v", pod.Name, err)
		}
	}
	forceIsForAdministrators(t, ns)
	awaitGone(t, pods["forced"])
	awaitPrintable(t, ns, "forced", v1.VirtualMachineStatusStopped)
	eventually(t, "an event that tells of it", hasEvent(ns, "forced", "has unlocked the vm by force, and vouches that the pod holds-forced"))

	isLockedFor(t, ns, "kept", pods["kept"].Name)
	start()
	awaitNode2(t)
	awaitGone(t, pods["kept"])
	awaitPrintable(t, ns, "kept", v1.VirtualMachineStatusStopped)
}

// forceIsForAdministrators forces the unlock of the VM "forced" as an editor of the namespace, and then as an
// administrator. Half of virt-api may be on the dead node, so requests without an answer are repeated.
func forceIsForAdministrators(t *testing.T, ns string) {
	t.Helper()
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edits"}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "editor"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	})
	release := func(ctx context.Context, config *rest.Config) error {
		ctx, cancel := context.WithTimeout(ctx, oneAttempt)
		defer cancel()
		c, err := vclient.New(config)
		if err != nil {
			return err
		}
		_, err = c.Release(ctx, vclient.Ref{Resource: vclient.VirtualMachines, Namespace: ns, Name: "forced"}, vclient.Parameter{Name: "force", Value: "true"})
		return err
	}
	editor := rest.CopyConfig(cluster.config)
	editor.Impersonate = rest.ImpersonationConfig{UserName: "editor", Groups: []string{"system:authenticated"}}
	eventually(t, "the refusal of an unlock by force", func(ctx context.Context) error {
		switch err := release(ctx, editor); {
		case err == nil:
			t.Fatal("an editor has unlocked a VM by force")
		case !strings.Contains(err.Error(), "a release by force needs: ask an administrator"):
			return err
		}
		return nil
	})
	isLockedFor(t, ns, "forced", "holds-forced")
	eventually(t, "the unlock by force", func(ctx context.Context) error {
		err := release(ctx, cluster.config)
		if err != nil && strings.Contains(err.Error(), "is not locked") {
			return nil // the earlier answer was lost
		}
		return err
	})
}

// The pod is being deleted.
func isLockedFor(t *testing.T, ns, name, pod string) {
	t.Helper()
	vm, holder := &v1.VirtualMachine{}, &corev1.Pod{}
	eventually(t, "the VM and its pod to be read", func(ctx context.Context) error {
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, vm); err != nil {
			return err
		}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: pod}, holder); err != nil {
			return fmt.Errorf("the pod's object must stay: %w", err)
		}
		return nil
	})
	if l, locked := lock.Of(vm); !locked || l.Pod != pod || !l.Open || holder.DeletionTimestamp == nil {
		t.Errorf("the VM %s has the lock %+v, and the pod %s the deletion time %v", name, l, pod, holder.DeletionTimestamp)
	}
}
