//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// leavesAFullNodeToGrow asks for memory and CPUs for a guest whose node has neither to spare. The conditions must say
// so, and one migration must bring the guest to the other node, where it has them.
func leavesAFullNodeToGrow(t *testing.T, g *guest) {
	t.Helper()
	ns := g.namespace
	from, boot, memory := awaitMigratable(t, ns, g.name).Status.NodeName, g.bootID(), g.memoryKiB()
	filler := fill(t, ns, from)

	changeTemplate(t, ns, g.name, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Memory.Guest = new(resource.MustParse("512Mi"))
		spec.Domain.CPU = &v1.CPU{Sockets: 2}
	})
	awaitVMI(t, ns, g.name, "that its node has no room", func(vmi *v1.VirtualMachineInstance) bool {
		for _, kind := range []v1.VirtualMachineInstanceConditionType{v1.VirtualMachineInstanceMemoryChange, v1.VirtualMachineInstanceVCPUChange} {
			if c := condition.Find(vmi.Status.Conditions, kind); c == nil || c.Reason != "PodResizePendingDeferred" {
				return false
			}
		}
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c != nil && strings.Contains(c.Message, "for which its node has no room")
	})
	vmi := awaitVMI(t, ns, g.name, "the other node", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName == otherThan(from) && vmi.Status.MigrationState != nil && vmi.Status.MigrationState.Completed
	})
	g = login(t, ns, g.name) // a console ends when the guest leaves the node
	g.hasMemory("512Mi", memory)
	g.asksMemory("512Mi")
	g.hasCPUs(2)
	if again := g.bootID(); again != boot {
		t.Errorf("the guest has been started again: %s, was %s", again, boot)
	}
	after := awaitVMI(t, ns, g.name, "nothing more to do", func(vmi *v1.VirtualMachineInstance) bool {
		return condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) == nil
	})
	if after.Status.MigrationState.MigrationUID != vmi.Status.MigrationState.MigrationUID {
		t.Errorf("the guest has migrated again: %+v", after.Status.MigrationState)
	}
	awaitNoRestartRequired(t, ns, g.name)
	deleteObject(t, filler) // the next test needs the node
	awaitGone(t, filler)
}

// fill waits until the pods of earlier tests are gone, which would free resources later, and then requests nearly all
// remaining CPU time and memory of a node for one pod.
func fill(t *testing.T, ns, node string) *corev1.Pod {
	t.Helper()
	eventually(t, "the pods of earlier tests to be gone", func(ctx context.Context) error {
		var list corev1.PodList
		if err := cluster.client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if _, ended := swept.Load(list.Items[i].Namespace); ended {
				return fmt.Errorf("%s/%s is not", list.Items[i].Namespace, list.Items[i].Name)
			}
		}
		return nil
	})
	object := &corev1.Node{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: node}, object); err != nil {
		t.Fatal(err)
	}
	cpu, memory := object.Status.Allocatable.Cpu().MilliValue(), object.Status.Allocatable.Memory().Value()
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != node || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for j := range pod.Spec.Containers {
			cpu -= pod.Spec.Containers[j].Resources.Requests.Cpu().MilliValue()
			memory -= pod.Spec.Containers[j].Resources.Requests.Memory().Value()
		}
	}
	filler := toolsPod(ns, "filler")
	filler.Spec.NodeName = node
	filler.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(cpu-80, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory-64<<20, resource.BinarySI),
	}
	create(t, filler)
	await(t, filler, &corev1.PodList{}, "phase Running", func(pod *corev1.Pod) bool {
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("the pod that fills node %s is refused: %s", node, pod.Status.Message)
		}
		return pod.Status.Phase == corev1.PodRunning
	})
	return filler
}
