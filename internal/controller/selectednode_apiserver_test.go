//go:build apiserver

package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

func (w *world) deadNode() string {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dead-" + w.namespace}}
	w.do("creating the node", w.client.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), node) })
	before := node.DeepCopy()
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		Reason: "NodeStatusUnknown", LastTransitionTime: long, LastHeartbeatTime: long}}
	w.do("writing the node's status", w.client.Status().Patch(w.ctx, node, client.MergeFrom(before)))
	return node.Name
}

func (w *world) waitingClaim(name string) {
	w.t.Helper()
	class := w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer)
	w.do("creating the claim", w.client.Create(w.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}))
}

func (w *world) readClaim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	var claim corev1.PersistentVolumeClaim
	w.do("reading the claim", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &claim))
	return &claim
}

func (w *world) choose(claim, node string) {
	w.t.Helper()
	to := w.readClaim(claim)
	before := to.DeepCopy()
	metav1.SetMetaDataAnnotation(&to.ObjectMeta, placement.SelectedNodeAnnotation, node)
	w.do("choosing a node", w.client.Patch(w.ctx, to, client.MergeFrom(before)))
}

func (w *world) awaitReleased(claim string) {
	w.t.Helper()
	w.eventually("the lost node to be taken off claim "+claim, func() (bool, string) {
		node := placement.SelectedNode(w.readClaim(claim))
		return node == "", "it is to be made on " + node
	})
}

func (w *world) createVMIOnClaim(name, claim string) {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Finalizers: []string{v1.VirtualMachineInstanceFinalizer}},
		Spec:       testSpec(),
	}
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = claim
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
}

func TestALostNodeIsTakenBackFromAClaimThatALauncherPodBinds(t *testing.T) {
	for name, lost := range map[string]func(*world) string{
		"the node is dead": (*world).deadNode,
		"the node is gone": func(*world) string { return "no-such-node" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.waitingClaim("data")
			w.createVMIOnClaim("vmi", "data")
			pod := w.awaitLauncher("vmi")
			w.choose("data", lost(w))
			w.awaitReleased("data")
			w.eventually("an event of the claim to say so", func() (bool, string) {
				said := w.warnings(w.readClaim("data"), "SelectedNodeLost")
				return len(said) == 1, fmt.Sprint(said)
			})
			// The scheduler chooses again for the existing pod, and the VM starts.
			w.choose("data", testNode)
			w.bindClaim("data")
			w.bind(pod)
			if vmi := w.awaitPhase("vmi", v1.Scheduled); vmi.Status.ActivePods[pod.UID] != testNode {
				t.Errorf("the VMI has another pod than at first: %v", vmi.Status.ActivePods)
			}
		})
	}
}

func TestANodeIsTakenBackFromWhatDrydockUsesOnly(t *testing.T) {
	w := newWorld(t)
	dead := w.deadNode()
	w.waitingClaim("others")
	w.waitingClaim("data")
	w.choose("others", dead)
	w.choose("data", dead)
	w.awaitSettled()
	if node := placement.SelectedNode(w.readClaim("data")); node != dead {
		t.Errorf("the claim of nobody's VM lost its node, it has %q", node)
	}
	// The next VMI finds the old choice of a deleted one.
	w.createVMIOnClaim("vmi", "data")
	w.awaitReleased("data")

	w.createDV("disk", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), blank(), func(dv *cdiv1.DataVolume) {
		metav1.SetMetaDataAnnotation(&dv.ObjectMeta, layout.AnnImmediate, "")
	})
	w.awaitWorker("importer-disk")
	w.choose("disk", dead)
	w.awaitReleased("disk")

	if node := placement.SelectedNode(w.readClaim("others")); node != dead {
		t.Errorf("a claim that no VM uses lost its node, it has %q", node)
	}
}

func TestALostNodeStaysChosenWhileAPodWithTheClaimIsOnIt(t *testing.T) {
	w := newWorld(t)
	dead := w.deadNode()
	w.waitingClaim("data")
	holder := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "holder", Namespace: w.namespace}, Spec: corev1.PodSpec{
		NodeName:   dead,
		Containers: []corev1.Container{{Name: "c", Image: "example.com/image:1"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
	}}
	w.do("making the pod", w.client.Create(w.ctx, holder))
	w.choose("data", dead)
	w.createVMIOnClaim("vmi", "data")
	w.awaitLauncher("vmi")
	w.awaitSettled()
	if node := placement.SelectedNode(w.readClaim("data")); node != dead {
		t.Errorf("the claim lost its node under a pod that is bound to it, it has %q", node)
	}
	w.removePod(holder)
	w.awaitReleased("data")
}
