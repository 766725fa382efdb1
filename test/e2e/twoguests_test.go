//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// census counts the QEMU processes of a VM on all nodes, which are namespaces of this machine, again and again.
type census struct {
	stop func()
	most int
}

// After stop, the census has the highest number that ran at once.
func countQEMUs(t *testing.T, namespace, name string) *census {
	t.Helper()
	uuid := string(awaitRunning(t, namespace, name).Spec.Domain.Firmware.UUID)
	c := &census{}
	var counting sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	counting.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for seen := (qemus{uuid: uuid}); ctx.Err() == nil; <-tick.C {
			c.most = max(c.most, seen.count())
		}
	})
	c.stop = sync.OnceFunc(func() {
		cancel()
		counting.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

func qemusOf(uuid string) int {
	q := qemus{uuid: uuid}
	return q.count()
}

// qemus finds the QEMU processes of a VM.
type qemus struct {
	uuid string
	// others counts how often a process was seen to be something else, so that not the arguments of all processes are
	// read fifty times a second.
	others map[int]int
}

// settled is the number of looks after which a process stays what it is: a child of virt-launcher becomes QEMU at once.
const settled = 50

// count returns the number of processes that run now.
func (q *qemus) count() int {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0
	}
	n, others := 0, make(map[int]int, len(all))
	for _, process := range all {
		looks := q.others[process.PID]
		if looks < settled {
			args, err := process.CmdLine()
			if err != nil {
				continue // it has ended
			}
			if line := strings.Join(args, " "); strings.Contains(line, "qemu-system") && strings.Contains(line, q.uuid) {
				n++
				continue
			}
			looks++
		}
		others[process.PID] = looks
	}
	q.others = others
	return n
}

func (c *census) once(t *testing.T) {
	t.Helper()
	c.stop()
	if c.most != 1 {
		t.Errorf("%d QEMUs ran at once, want 1", c.most)
	}
}

func awaitNoPods(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	eventually(t, "the launcher pods of the instance before to be gone", func(context.Context) error {
		if n := len(launcherPods(t, vmi)); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
}

// TestAVMIThatIsDeletedAloneHasNoSecondGuest deletes a VM's VMIs in the ways that remove the launcher pod's
// owner, and the pod by force. The VM must start again only after the earlier guest has ended: only real pods
// have QEMUs to count.
func TestAVMIThatIsDeletedAloneHasNoSecondGuest(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, newVM(newVMI(ns, "alone"), v1.RunStrategyAlways))
	awaitPrintable(t, ns, "alone", v1.VirtualMachineStatusRunning)
	tests := map[string]func(t *testing.T, vmi *v1.VirtualMachineInstance){
		"orphaned": func(t *testing.T, vmi *v1.VirtualMachineInstance) {
			out, err := kubectl(t.Context(), "-n", vmi.Namespace, "delete", "vmi", vmi.Name, "--cascade=orphan", "--wait=false")
			if err != nil {
				t.Fatalf("deleting the VMI: %v\n%s", err, out)
			}
		},
		"disowned": func(t *testing.T, vmi *v1.VirtualMachineInstance) {
			disown(t, vmi)
			deleteObject(t, vmi)
		},
		"stripped": func(t *testing.T, vmi *v1.VirtualMachineInstance) {
			disown(t, vmi)
			deleteObject(t, vmi)
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := client.IgnoreNotFound(cluster.client.Patch(t.Context(), vmi, patch)); err != nil {
				t.Fatalf("taking the VMI's finalizers away: %v", err)
			}
		},
		"forced": func(t *testing.T, vmi *v1.VirtualMachineInstance) {
			out, err := kubectl(t.Context(), "-n", vmi.Namespace, "delete", "pod", launcherPod(t, vmi).Name, "--force", "--grace-period=0")
			if err != nil {
				t.Fatalf("deleting the pod by force: %v\n%s", err, out)
			}
		},
	}
	for name, take := range tests {
		inTurn(t, chapter{name, func(t *testing.T) {
			vmi := awaitRunning(t, ns, "alone")
			login(t, ns, "alone") // a guest that has not booted ignores the power button
			c := countQEMUs(t, ns, "alone")
			take(t, vmi.DeepCopy())
			awaitNextInstance(t, ns, "alone", vmi.UID)
			c.once(t)
			awaitNoPods(t, vmi)
			startedOnce(t, ns, "alone")
		}})
	}
}

func disown(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
	if err := cluster.client.Patch(t.Context(), launcherPod(t, vmi), patch); err != nil {
		t.Fatalf("taking the launcher pod's owner away: %v", err)
	}
}

// TestAPodDeletedByForceWhileVirtHandlerIsAway stops every virt-handler, so that only the kubelet ends the guest, which
// ignores the power button: QEMU runs on for most of its pod's grace period, and the VM must wait for that. Not
// parallel: other tests need virt-handler. In the API server's tests no QEMU runs on; here the test counts them.
func TestAPodDeletedByForceWhileVirtHandlerIsAway(t *testing.T) {
	ns := newNamespace(t)
	vmi := newVMI(ns, "unattended")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(5))
	bootVM(t, newVM(vmi, v1.RunStrategyAlways))
	first := awaitRunning(t, ns, "unattended")
	pod := launcherPod(t, first)
	var thaw []func()
	for _, pid := range componentPIDs("handler")(t) {
		thaw = append(thaw, freeze(t, pid))
	}
	c := countQEMUs(t, ns, "unattended")
	if err := cluster.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("deleting the pod by force: %v", err)
	}
	awaitVMI(t, ns, "unattended", "to say that its pod is gone", func(vmi *v1.VirtualMachineInstance) bool {
		return readyReason(vmi) == v1.PodNotExistsReason
	})
	eventually(t, "the guest to be given up", func(ctx context.Context) error {
		stored := &v1.VirtualMachineInstance{}
		err := cluster.client.Get(ctx, client.ObjectKeyFromObject(first), stored)
		if err == nil && stored.UID == first.UID && !stored.IsFinal() {
			return fmt.Errorf("it is in phase %s", stored.Status.Phase)
		}
		return err
	})
	for _, back := range thaw {
		back()
	}
	awaitNextInstance(t, ns, "unattended", first.UID)
	c.once(t)
}

func readyReason(vmi *v1.VirtualMachineInstance) string {
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceReady {
			return c.Reason
		}
	}
	return ""
}

// TestAGuestOnANodeThatFallsSilent stops a node's kubelet: the VM must be Unknown and not ready, while its guest
// runs on, and recover with the kubelet. Then the node dies, and the VM must start again when it is back. Only a
// node that comes back shows whether there are two guests. Not parallel: it takes a node from other tests.
func TestAGuestOnANodeThatFallsSilent(t *testing.T) {
	ns := newNamespace(t)
	vm := newVM(newVMI(ns, "lonely"), v1.RunStrategyAlways)
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node2}
	g := bootVM(t, vm)
	bootID, first := g.bootID(), awaitRunning(t, ns, "lonely")
	c := countQEMUs(t, ns, "lonely")

	thaw := freeze(t, kubeletOf(t, node2))
	awaitVM(t, ns, "lonely", "not to be ready, for its node does not answer", func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusUnknown && !vm.Status.Ready
	})
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lonely"}}
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi); err != nil {
		t.Fatal(err)
	}
	if reason := readyReason(vmi); reason != vmistatus.ReasonNodeLost {
		t.Errorf("the VMI is not Ready for the reason %q, want %q", reason, vmistatus.ReasonNodeLost)
	}
	thaw()
	awaitNode2(t)
	awaitVM(t, ns, "lonely", "to be back with its node", func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusRunning && vm.Status.Ready
	})
	if back := login(t, ns, "lonely").bootID(); back != bootID || instanceUID(t, ns, "lonely") != first.UID {
		t.Error("the guest was started again when its node was silent")
	}

	start := killNode2(t)
	awaitPrintable(t, ns, "lonely", v1.VirtualMachineStatusUnknown)
	start()
	awaitNode2(t)
	awaitNextInstance(t, ns, "lonely", first.UID)
	c.once(t)
}
