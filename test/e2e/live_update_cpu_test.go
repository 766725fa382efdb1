//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func (g *guest) setSockets(n uint32) {
	g.t.Helper()
	changeTemplate(g.t, g.namespace, g.name, func(spec *v1.VirtualMachineInstanceSpec) {
		if spec.Domain.CPU == nil {
			spec.Domain.CPU = &v1.CPU{}
		}
		spec.Domain.CPU.Sockets = n
	})
}

// hasCPUs waits until the guest has n CPUs, with one core each, and no CPU change is pending. It brings new CPUs
// online, as the udev rules of most systems do.
func (g *guest) hasCPUs(n uint32) {
	g.t.Helper()
	awaitVMI(g.t, g.namespace, g.name, fmt.Sprintf("%d sockets", n), func(vmi *v1.VirtualMachineInstance) bool {
		has := vmi.Status.CurrentCPUTopology
		return has != nil && has.Sockets == n && condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceVCPUChange) == nil
	})
	const use = "for c in /sys/devices/system/cpu/cpu*/online; do [ $(cat $c) = 1 ] || echo 1 >$c; done 2>/dev/null; nproc"
	g.sees("the number of CPUs", use, strconv.Itoa(int(n)))
}

// asks waits until the guest's pod requests cpu, and has it allocated.
func (g *guest) asks(cpu string) {
	g.t.Helper()
	vmi := awaitRunning(g.t, g.namespace, g.name)
	eventually(g.t, "the launcher pod to have "+cpu, func(context.Context) error {
		pod := launcherPod(g.t, vmi)
		asks := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		var has resource.Quantity
		if r := pod.Status.ContainerStatuses[0].Resources; r != nil {
			has = r.Requests[corev1.ResourceCPU]
		}
		if want := resource.MustParse(cpu); asks.Cmp(want) != 0 || has.Cmp(want) != 0 {
			return fmt.Errorf("it asks for %s and has %s", asks.String(), has.String())
		}
		return nil
	})
}

// givesBack shrinks the guest from three sockets to two and grows it back: at once, or, under emulation, after a
// restart.
func (g *guest) givesBack() {
	g.t.Helper()
	g.setSockets(2)
	if kvm, _ := vmistatus.RunsWithKVM(awaitRunning(g.t, g.namespace, g.name)); kvm {
		g.hasCPUs(2)
		g.asks("200m")
	} else {
		awaitVM(g.t, g.namespace, g.name, "that a restart is required", func(vm *v1.VirtualMachine) bool {
			c := condition.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired)
			return c != nil && strings.Contains(c.Message, "spec.template.spec.domain.cpu.sockets, because the guest is emulated")
		})
	}
	g.setSockets(3)
	g.hasCPUs(3)
	g.asks("300m")
}

// plugsBeforeResize plugs disks of both modes. goOn checks that they still work and that another disk can be plugged.
func (g *guest) plugsBeforeResize() (goOn func()) {
	g.t.Helper()
	claim(g.t, g.namespace, "file-old", corev1.PersistentVolumeFilesystem, folderOnNode1(g.namespace, "file-old"))
	claim(g.t, g.namespace, "block-old", corev1.PersistentVolumeBlock, blockDevice(g.t))
	claim(g.t, g.namespace, "block-new", corev1.PersistentVolumeBlock, blockDevice(g.t))
	plugged := []string{"file-old", "block-old"}
	for _, name := range plugged {
		do(g.t, g.namespace, "addvolume", g.name, "--volume-name="+name)
	}
	for _, name := range plugged {
		g.gets(name)
		g.run("echo old | dd of=" + g.device(name) + " conv=fsync")
	}
	return func() {
		g.t.Helper()
		for _, name := range plugged {
			g.run("echo new | dd of=" + g.device(name) + " conv=fsync && echo 3 >/proc/sys/vm/drop_caches")
			g.sees("what was written after the resize", "head -n 1 "+g.device(name), "new")
		}
		do(g.t, g.namespace, "addvolume", g.name, "--volume-name=block-new")
		g.gets("block-new")
		g.run("echo new | dd of=" + g.device("block-new") + " conv=fsync")
		plugged = append(plugged, "block-new")
		for _, name := range plugged {
			do(g.t, g.namespace, "removevolume", g.name, "--volume-name="+name)
		}
		for _, name := range plugged {
			g.loses(name)
		}
	}
}

// TestCPUsChangeInPlace gives a guest CPUs and takes some back, in the same pod and QEMU. A quota refuses one CPU,
// which must arrive when the quota allows it. With the pod's resources the real runtime rewrites the cgroup and its
// device rules: plugged disks must still work, and new ones must be pluggable.
func TestCPUsChangeInPlace(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newVM(onNode1(newVMI(ns, "grows")), v1.RunStrategyAlways))
	written := g.plugsBeforeResize()
	boot, vmi := g.bootID(), awaitRunning(t, ns, "grows")
	pod := launcherPod(t, vmi)

	g.setSockets(3)
	g.hasCPUs(3)
	g.asks("300m")
	written()
	g.givesBack()

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("350m")}
	create(t, quota)
	eventually(t, "the quota to be in force", func(ctx context.Context) error {
		if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if used := quota.Status.Used[corev1.ResourceRequestsCPU]; used.Cmp(resource.MustParse("300m")) != 0 {
			return fmt.Errorf("it has counted %s", used.String())
		}
		return nil
	})
	g.setSockets(4)
	awaitVMI(t, ns, "grows", "the quota's refusal", func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceVCPUChange)
		return c != nil && c.Reason == "PodResizeRefused" && strings.Contains(c.Message, "exceeded quota: small") && vmi.Status.CurrentCPUTopology.Sockets == 3
	})
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsCPU] = resource.MustParse("1")
	if err := cluster.client.Patch(t.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatalf("raising the quota: %v", err)
	}
	g.hasCPUs(4)
	g.asks("400m")

	after := awaitRunning(t, ns, "grows")
	if after.Status.MigrationState != nil || after.UID != vmi.UID {
		t.Errorf("the guest has not stayed where it was: %+v", after.Status.MigrationState)
	}
	if now := launcherPod(t, after); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest is in the pod %s, was in %s", now.Name, pod.Name)
	}
	if again := g.bootID(); again != boot {
		t.Errorf("the guest has been started again: %s, was %s", again, boot)
	}
	awaitNoRestartRequired(t, ns, "grows")
}
