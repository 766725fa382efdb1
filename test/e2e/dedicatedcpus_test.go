//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern/pinning"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Given two nodes with two CPUs, of which one can be a guest's alone: a guest that asks for one has it, also after a
// migration, and one that asks for two says that no node has them.
func TestAGuestHasCPUsOfItsOwn(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	wide := newVMI(ns, "wide")
	wide.Spec.Domain.CPU = &v1.CPU{Cores: 1, DedicatedCPUPlacement: true, IsolateEmulatorThread: true}
	create(t, newVM(wide, v1.RunStrategyAlways))
	vm := newMigratableVM(t, ns, "pinned")
	vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Cores: 1, DedicatedCPUPlacement: true}
	g := bootVM(t, vm)
	bootID := g.bootID()

	hasOwnCPU(t, ns, "pinned")
	if onTwoCPUs(t) {
		awaitVMI(t, ns, "wide", "that no node has two CPUs for it", func(vmi *v1.VirtualMachineInstance) bool {
			c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceConditionType(corev1.PodScheduled))
			return c != nil && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "Insufficient cpu")
		})
	}
	moved := migrated(t, ns, "pinned")
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	hasOwnCPU(t, ns, "pinned")
	if login(t, ns, "pinned").bootID() != bootID {
		t.Error("the guest has been started again")
	}
}

func onTwoCPUs(t *testing.T) bool {
	t.Helper()
	var nodes corev1.NodeList
	if err := cluster.client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Status.Capacity.Cpu().Value() > 2 })
}

// hasOwnCPU waits until QEMU runs on one CPU, which virt-handler on the same node must not use.
func hasOwnCPU(t *testing.T, ns, name string) {
	t.Helper()
	vmi := awaitRunning(t, ns, name)
	pod := launcherPod(t, vmi)
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the class of pod %s is %s", pod.Name, pod.Status.QOSClass)
	}
	eventually(t, "a CPU of "+name+"'s own", func(context.Context) error {
		vmi := awaitRunning(t, ns, name)
		var node pinning.Process
		own, err := node.Affinity(processOf(t, launcherPod(t, vmi), "qemu-system-x86_64"))
		if err != nil {
			return err
		}
		others, err := node.Affinity(processOf(t, handlerPod(t, vmi.Status.NodeName), "virt"))
		if err != nil {
			return err
		}
		if len(own) != 1 || slices.Contains(others, own[0]) {
			return fmt.Errorf("QEMU runs on the CPUs %v, virt-handler on %v", own, others)
		}
		return nil
	})
}
