//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestEveryPartCanBeKilled kills each component with SIGKILL while one guest runs, one VM starts and one stops. The
// running guest must not notice, and the other two must start and stop. The API server's tests show that a loop may end
// at each step; only a node shows that pods, nodes and guests live on. `make test` kills all of Drydock, all of the
// nodes' components and the API server, each group at once; `make test-all` kills them one after the other. Not
// parallel: it kills parts that other tests need.
func TestEveryPartCanBeKilled(t *testing.T) {
	ns := newNamespace(t)
	witness := bootVM(t, newVM(newVMI(ns, "witness"), v1.RunStrategyAlways))
	bootID, instance := witness.bootID(), instanceUID(t, ns, "witness")

	victims := map[string]func(*testing.T) []int{
		"virt-api":        componentPIDs("api"),
		"virt-controller": componentPIDs("controller"),
		"virt-handler":    componentPIDs("handler"),
		"kubelet":         nodePIDs("kubelet"),
		"containerd":      nodePIDs("containerd"),
		"kube-apiserver":  controlPlanePIDs("kube-apiserver"),
	}
	if testing.Short() {
		victims = map[string]func(*testing.T) []int{
			"drydock":        allOf(victims["virt-api"], victims["virt-controller"], victims["virt-handler"]),
			"nodes":          allOf(victims["kubelet"], victims["containerd"]),
			"kube-apiserver": victims["kube-apiserver"],
		}
	}
	// The VM that starts while one component is killed stops while the next one is.
	stopping := "first"
	bootVM(t, newVM(newVMI(ns, stopping), v1.RunStrategyAlways))
	for victim, pids := range victims {
		alive := t.Run(victim, func(t *testing.T) {
			starting := "starting-" + victim
			create(t, newVM(newVMI(ns, starting), v1.RunStrategyAlways))
			do(t, ns, "stop", stopping)
			for _, pid := range pids(t) {
				// One may have ended by itself, for example a virt-controller that has lost its lease.
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
					t.Fatalf("killing %s (pid %d): %v", victim, pid, err)
				}
			}

			awaitPrintable(t, ns, starting, v1.VirtualMachineStatusRunning)
			awaitPrintable(t, ns, stopping, v1.VirtualMachineStatusStopped)
			startedOnce(t, ns, starting)
			witness := login(t, ns, "witness")
			if witness.bootID() != bootID || instanceUID(t, ns, "witness") != instance {
				t.Errorf("the guest that ran all the time was started again when %s was killed", victim)
			}
			login(t, ns, starting)
			removeVM(t, ns, stopping)
			stopping = starting
		})
		if !alive {
			return
		}
	}
}

// allOf finds the processes of several components.
func allOf(parts ...func(*testing.T) []int) func(*testing.T) []int {
	return func(t *testing.T) (pids []int) {
		t.Helper()
		for _, part := range parts {
			pids = append(pids, part(t)...)
		}
		return pids
	}
}

// startedOnce checks that a VM's instance has exactly one launcher pod, and waits until one QEMU process of the VM is
// left: the QEMU of a pod that was deleted by force ends after the pod.
func startedOnce(t *testing.T, namespace, name string) {
	t.Helper()
	vmi := awaitRunning(t, namespace, name)
	launcherPod(t, vmi)
	eventually(t, "one QEMU of "+name, func(context.Context) error {
		if n := qemusOf(string(vmi.Spec.Domain.Firmware.UUID)); n != 1 {
			return fmt.Errorf("%d QEMU processes run its guest", n)
		}
		return nil
	})
}

func removeVM(t *testing.T, namespace, name string) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	vm.Namespace, vm.Name = namespace, name
	deleteObject(t, vm)
	awaitGone(t, vm)
}

// The nodes of the embedded cluster are namespaces of this machine.
func componentPIDs(name string) func(*testing.T) []int {
	return func(t *testing.T) []int {
		t.Helper()
		pids := processes(t, func(pid int, args []string) bool {
			return len(args) > 1 && filepath.Base(args[0]) == "virt" && args[1] == name && inThisCluster(pid)
		})
		if len(pids) == 0 {
			t.Fatalf("no process of virt %s found", name)
		}
		return pids
	}
}

// inThisCluster tells this cluster's processes from those of another cluster on the same machine by the cluster's name
// in their cgroup.
func inThisCluster(pid int) bool {
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(cgroup), os.Getenv("DRYDOCK_NAME"))
}

func nodePIDs(name string) func(*testing.T) []int {
	return func(t *testing.T) []int {
		t.Helper()
		var pids []int
		for _, node := range status(t).Nodes {
			for _, c := range node.Components {
				if c.Name == name {
					pids = append(pids, c.PID)
				}
			}
		}
		if len(pids) == 0 {
			t.Fatalf("drydock status lists no %s", name)
		}
		return pids
	}
}

func controlPlanePIDs(name string) func(*testing.T) []int {
	return func(t *testing.T) []int {
		t.Helper()
		for _, c := range status(t).ControlPlane {
			if c.Name == name {
				return []int{c.PID}
			}
		}
		t.Fatalf("drydock status lists no %s", name)
		return nil
	}
}

func processes(t *testing.T, match func(pid int, args []string) bool) []int {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, process := range all {
		// A process whose arguments can't be read has ended; the kernel's own have none.
		if args, err := process.CmdLine(); err == nil && len(args) > 0 && match(process.PID, args) {
			found = append(found, process.PID)
		}
	}
	return found
}

// TestDrydockIsAvailable waits until the KubeVirt object is Available again after all the kills, which only this
// level has.
func TestDrydockIsAvailable(t *testing.T) {
	eventually(t, "the KubeVirt object to say Deployed and Available", func(ctx context.Context) error {
		var kv v1.KubeVirt
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "kubevirt", Name: "kubevirt"}, &kv); err != nil {
			return err
		}
		if kv.Status.Phase != v1.KubeVirtPhaseDeployed {
			return fmt.Errorf("phase is %q", kv.Status.Phase)
		}
		for _, c := range kv.Status.Conditions {
			if c.Type == v1.KubeVirtConditionAvailable && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", kv.Status.Conditions)
	})
}
