//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func awaitPhase(t *testing.T, ns, name string, phase cdiv1.DataVolumePhase) {
	t.Helper()
	awaitDataVolume(t, ns, name, "phase "+string(phase), func(dv *cdiv1.DataVolume) bool {
		return slices.Index(importPhases, dv.Status.Phase) >= slices.Index(importPhases, phase)
	})
}

// killController ends virt-controller by SIGKILL. It removes the kubelet's backoff between restarts and another pod's
// wait for the lease, which are not under test.
func killController(t *testing.T) {
	t.Helper()
	eventually(t, "a virt-controller to kill", func(context.Context) error {
		pids := processes(t, func(pid int, args []string) bool {
			return len(args) > 1 && filepath.Base(args[0]) == "virt" && args[1] == "controller" && inThisCluster(pid)
		})
		if len(pids) == 0 {
			return fmt.Errorf("none runs")
		}
		return syscall.Kill(pids[0], syscall.SIGKILL)
	})
	pods := []client.DeleteAllOfOption{
		client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-controller"}, client.GracePeriodSeconds(0),
	}
	if err := cluster.client.DeleteAllOf(t.Context(), &corev1.Pod{}, pods...); err != nil {
		t.Fatalf("deleting virt-controller's pod: %v", err)
	}
	deleteObject(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "virt-controller"}})
}

// awaitNoDisks waits until the namespace has no disks, and none of the objects that made them, except the pod that
// serves images.
func awaitNoDisks(t *testing.T, ns string) {
	t.Helper()
	nothingBesides(t, ns)
	eventually(t, "the disks to be gone", func(ctx context.Context) error {
		var pods corev1.PodList
		var dvs cdiv1.DataVolumeList
		var claims corev1.PersistentVolumeClaimList
		for _, list := range []client.ObjectList{&pods, &dvs, &claims} {
			if err := cluster.client.List(ctx, list, client.InNamespace(ns)); err != nil {
				return err
			}
		}
		if len(pods.Items) > 1 || len(dvs.Items) > 0 || len(claims.Items) > 0 {
			return fmt.Errorf("there are %d pods (one serves images), %d DataVolumes, %d claims", len(pods.Items), len(dvs.Items), len(claims.Items))
		}
		var volumes corev1.PersistentVolumeList
		if err := cluster.client.List(ctx, &volumes); err != nil {
			return err
		}
		for i := range volumes.Items {
			if of := volumes.Items[i].Spec.ClaimRef; of != nil && of.Namespace == ns {
				return fmt.Errorf("there is the volume %s of claim %s", volumes.Items[i].Name, of.Name)
			}
		}
		return nil
	})
}

// TestVirtControllerDiesAtEachStepOfADisk kills it at each step in the life of a VM's disks. The VM is deleted
// half way, and created again. Only real storage acts meanwhile. Not parallel: other tests need virt-controller.
func TestVirtControllerDiesAtEachStepOfADisk(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	url, sum := serveImage(t, ns, "what-outlives-virt-controller\n")
	attempt := func() *v1.VirtualMachine {
		vm := newVM(newVMI(ns, "vm"), v1.RunStrategyAlways)
		addDataVolume(vm, "web", classLocal, fromWeb(laterAt(url)))
		addDataVolume(vm, "blank", classLocal, blankDisk())
		return vm
	}
	seen := watchDisks(t, ns)
	diesAt := func(what string) {
		t.Logf("virt-controller dies at: %s", what)
		killController(t)
	}

	vm := attempt()
	create(t, vm)
	diesAt("the VM is made")
	awaitPhase(t, ns, "vm-web", cdiv1.Pending)
	diesAt("its DataVolumes are made")
	awaitPhase(t, ns, "vm-blank", cdiv1.WaitForFirstConsumer)
	diesAt("they wait for their first consumer")
	awaitPhase(t, ns, "vm-web", cdiv1.PVCBound)
	diesAt("the claims are bound")
	awaitPhase(t, ns, "vm-web", cdiv1.ImportScheduled)
	diesAt("a worker is scheduled")
	awaitPhase(t, ns, "vm-web", cdiv1.ImportInProgress)
	deleteObject(t, vm)
	diesAt("the VM is deleted while a worker works")
	awaitGone(t, vm)
	awaitNoDisks(t, ns)

	create(t, attempt())
	eventually(t, "the second provisioning pod, which may be gone in no time", func(context.Context) error {
		if n := seen.provisioningPods(); n < 2 {
			return fmt.Errorf("there has been %d", n)
		}
		return nil
	})
	diesAt("the provisioning pod is made")
	awaitPhase(t, ns, "vm-web", cdiv1.ImportInProgress)
	diesAt("a worker works")
	makeAvailable(t, ns)
	awaitPhase(t, ns, "vm-web", cdiv1.Succeeded)
	diesAt("a disk is made")
	awaitNoProvisioningPod(t, ns)
	g := login(t, ns, "vm")
	g.sees("the checksum of what the server has", "dd if="+g.device("WEB")+" bs=1M count=8 2>/dev/null | sha256sum | cut -d' ' -f1", sum)
	nothingBesides(t, ns)

	seen.mu.Lock()
	defer seen.mu.Unlock()
	if got, want := seen.phases["vm-web"], slices.Concat(importPhases[:5], importPhases); !slices.Equal(got, want) {
		t.Errorf("the phases of both attempts are %v, want %v", got, want)
	}
	if n := len(seen.provisioning); n != 2 {
		t.Errorf("there were %d provisioning pods, want one for each attempt", n)
	}
}

// TestANodeIsLostBeforeItsClaimsAreBound lets the scheduler choose a node for the claims of two VMs; then the
// storage's provisioner hangs, and the node dies. One VM's claims are bound by a provisioning pod; the other's,
// without DataVolumes, by its launcher pod. Scheduler and provisioner are real only here. Not parallel: other tests
// need both.
func TestANodeIsLostBeforeItsClaimsAreBound(t *testing.T) {
	onlyInTestAll(t)
	provisioned := vmWithBlankDisk(newNamespace(t), "vm", classLocal)
	addDataVolume(provisioned, "more", classLocal, blankDisk())
	vms := []*v1.VirtualMachine{provisioned, vmWithClaims(t, newNamespace(t))}

	storage := controlPlanePIDs("drydock-storage")(t)[0]
	freeze(t, storage)
	for _, vm := range vms {
		create(t, preferring(vm, node2))
	}
	for _, vm := range vms {
		awaitSettled(t, vm.Namespace, node2)
	}
	thaw := freeze(t, kubeletOf(t, node2))
	for _, vm := range vms {
		awaitSettled(t, vm.Namespace, node1)
	}
	thaw()
	// Its successor does not know that the other node was chosen before.
	if err := syscall.Kill(storage, syscall.SIGKILL); err != nil {
		t.Fatalf("killing the storage's provisioner: %v", err)
	}
	for _, vm := range vms {
		awaitOn(t, vm.Namespace, "vm", node1)
		awaitNoProvisioningPod(t, vm.Namespace)
		nothingBesides(t, vm.Namespace)
	}
	awaitNode2(t)
}

func vmWithClaims(t *testing.T, ns string) *v1.VirtualMachine {
	t.Helper()
	vm := newVM(newVMI(ns, "vm"), v1.RunStrategyAlways)
	for _, name := range []string{"data", "more"} {
		create(t, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vm-" + name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(classLocal),
				VolumeMode: new(corev1.PersistentVolumeBlock),
				Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
			},
		})
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = "vm-" + name
		addClaimDisk(vm, name, v1.VolumeSource{PersistentVolumeClaim: source})
	}
	return vm
}

func awaitSettled(t *testing.T, ns, node string) {
	t.Helper()
	for _, name := range []string{"vm-data", "vm-more"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		await(t, claim, &corev1.PersistentVolumeClaimList{}, "the choice of "+node, func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["volume.kubernetes.io/selected-node"] == node
		})
	}
}

// freeze stops a process until thaw is called or the test ends.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freezing process %d: %v", pid, err)
	}
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may be gone
	t.Cleanup(thaw)
	return thaw
}

func kubeletOf(t *testing.T, node string) int {
	t.Helper()
	for _, n := range status(t).Nodes {
		for _, c := range n.Components {
			if n.Name == node && c.Name == "kubelet" {
				return c.PID
			}
		}
	}
	t.Fatalf("drydock status lists no kubelet of %s", node)
	return 0
}

// killNode2 kills node2 with all its processes, which are only a part of Drydock. start restarts it; so does the end of
// the test.
func killNode2(t *testing.T) (start func()) {
	t.Helper()
	for _, app := range []string{"virt-api", "virt-controller"} {
		spread(t, app)
	}
	if out, err := output(t.Context(), "drydock", "node", "kill", node2); err != nil {
		t.Fatalf("killing the node: %v\n%s", err, out)
	}
	dead := true
	start = func() {
		dead = false
		if out, err := output(context.Background(), "drydock", "node", "start", node2); err != nil {
			t.Errorf("starting the node: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() {
		if dead {
			start()
		}
	})
	return start
}

// An earlier test may have drained node1, and the pods on the other node stay there.
func spread(t *testing.T, app string) {
	t.Helper()
	moved := false
	eventually(t, app+" on "+node1, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: app}); err != nil {
			return err
		}
		stay := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		i := slices.IndexFunc(stay, func(p corev1.Pod) bool { return p.Spec.NodeName != node2 })
		switch {
		case i >= 0 && podReady(&stay[i]):
			return nil
		case i < 0 && len(stay) > 1 && !moved:
			moved = true
			return errors.Join(errors.New("all its pods are on the other node"), cluster.client.Delete(ctx, &stay[0]))
		}
		return errors.New("it has none that is ready")
	})
}

func awaitNode2(t *testing.T) {
	t.Helper()
	await(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node2}}, &corev1.NodeList{}, "readiness", func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
}
