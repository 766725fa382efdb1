//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func (w *world) nodeSays(ready corev1.ConditionStatus, since time.Duration) {
	w.t.Helper()
	node := &corev1.Node{}
	w.do("reading the node", w.client.Get(w.ctx, client.ObjectKey{Name: testNode}, node))
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "AsTheTestSays", Message: "as the test says",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
	}}
	w.do("writing the node's status", w.client.Status().Patch(w.ctx, node, client.MergeFrom(before)))
}

// A user or the garbage collector may do so.
func (w *world) disown(pod *corev1.Pod) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
	w.do("taking the owner off the pod", w.client.Patch(w.ctx, pod.DeepCopy(), patch))
}

func (w *world) desert(vmi *v1.VirtualMachineInstance) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	w.do("taking the finalizers off the VMI", w.client.Patch(w.ctx, vmi.DeepCopy(), patch))
	w.do("deleting the VMI", client.IgnoreNotFound(w.client.Delete(w.ctx, vmi)))
}

func (w *world) awaitReady(name string, status corev1.ConditionStatus, reason string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("VMI %s to say Ready %s %s", name, status, reason), func() (bool, string) {
		vmi := w.vmi(name)
		if vmi == nil {
			return false, "there is no VMI"
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceReady {
				return c.Status == status && c.Reason == reason, fmt.Sprintf("%+v", c)
			}
		}
		return false, "it has no such condition"
	})
}

func (w *world) awaitWaiting(name, reason string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("VMI %s to wait for %s", name, reason), func() (bool, string) {
		vmi := w.vmi(name)
		if vmi == nil {
			return false, "there is no VMI"
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceSynchronized {
				return c.Reason == reason, c.Message
			}
		}
		return false, fmt.Sprintf("it says nothing: %+v", vmi.Status)
	})
}

func (w *world) deleting(pod *corev1.Pod) bool {
	var stored corev1.Pod
	err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), &stored)
	return err != nil || stored.DeletionTimestamp != nil
}

func (w *world) finishPod(pod *corev1.Pod) {
	w.t.Helper()
	w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
	w.removePod(pod)
}

func TestAVMIDeletedWithItsPodOrphanedStaysUntilItsGuestHasEnded(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.do("deleting the VMI alone", w.client.Delete(w.ctx, first, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the garbage collector to orphan the pod", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		return len(pod.OwnerReferences) == 0, "it has its owner"
	})
	w.noSuccessor(first)
	if vmi := w.vmi("vm"); vmi == nil || vmi.UID != first.UID || len(w.pods()) != 1 {
		t.Fatalf("while the guest runs, the VMI is %+v and there are %d pods", vmi, len(w.pods()))
	}
	w.phase("vm", v1.Succeeded) // virt-handler has ended the guest
	w.awaitPodDeletion(pod)
	w.finishPod(pod)
	second := w.successor(first)
	w.awaitPod(second)
}

func TestAPodWithoutItsOwnerIsKeptWhileItsGuestRuns(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.disown(pod)
	w.noSuccessor(first)
	if vmi := w.vmi("vm"); vmi == nil || vmi.Status.Phase != v1.Running || w.deleting(pod) {
		t.Errorf("the guest was given up: %+v", vmi)
	}
	// The guest's phase must follow its end, too.
	w.end("vm", pod, v1.Failed)
	w.successor(first)
}

func TestAPodThatLosesItsOwnerBeforeItsGuestStartsIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	pod := w.awaitLauncher("vmi")
	w.awaitPhase("vmi", v1.Scheduling)
	w.disown(pod)
	w.eventually("another pod of the name", func() (bool, string) {
		var next corev1.Pod
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), &next)
		return err == nil && next.UID != pod.UID, fmt.Sprint(err)
	})
	w.run("vmi")
}

func TestTheGuestOfAVMIThatIsGoneIsEndedBeforeTheNextOneStarts(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.disown(pod)
	w.desert(first)
	second := w.successor(first)
	w.awaitWaiting("vm", vmicontroller.ReasonPredecessorRuns)
	w.awaitPodDeletion(pod)
	w.awaitSettled()
	if pods := w.pods(); len(pods) != 1 {
		t.Fatalf("there are %d pods while the first guest may run", len(pods))
	}
	w.finishPod(pod)
	w.awaitPod(second)
	w.run("vm")
}

func TestAPodThatIsNobodysIsNeitherUsedNorDeleted(t *testing.T) {
	w := newWorld(t)
	vmi := &v1.VirtualMachineInstance{Spec: testSpec()}
	vmi.Name, vmi.Namespace, vmi.Finalizers = "vmi", w.namespace, []string{v1.VirtualMachineInstanceFinalizer}
	vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = claimDisk()
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
	w.awaitPhase("vmi", v1.Pending) // its claim is missing
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: launcherpod.Name(w.vmi("vmi")), Namespace: w.namespace}}
	forged.Spec.SchedulerName = "the-test"
	forged.Spec.Containers = []corev1.Container{{Name: "compute", Image: "example.com/evil:1"}}
	w.do("creating a pod of the launcher pod's name", w.client.Create(w.ctx, forged))
	w.createClaim()
	w.awaitWaiting("vmi", vmistatus.ReasonFailedCreate)
	w.bind(forged)
	if vmi := w.vmi("vmi"); len(vmi.Status.ActivePods) != 0 || w.deleting(forged) {
		t.Errorf("the pod is used or deleted: active pods %v, deleted %v", vmi.Status.ActivePods, w.deleting(forged))
	}
	w.do("deleting the VMI", w.client.Delete(w.ctx, w.vmi("vmi")))
	w.awaitGone("vmi")
	if w.deleting(forged) {
		t.Error("the pod was deleted with the VMI")
	}
}

const claimName = "data"

func claimDisk() ([]v1.Volume, []v1.Disk) {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = claimName
	return []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}},
		[]v1.Disk{{Name: "disk", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
}

func (w *world) createClaim() {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claim.Name, claim.Namespace = claimName, w.namespace
	w.do("creating the claim", w.client.Create(w.ctx, claim))
}

func (w *world) createVMIOn(name string) {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{Spec: testSpec()}
	vmi.Name, vmi.Namespace, vmi.Finalizers = name, w.namespace, []string{v1.VirtualMachineInstanceFinalizer}
	vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = claimDisk()
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
}

func TestTwoVMIsOnOneDiskTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.createClaim()
	w.createVMIOn("one")
	pod := w.run("one")
	w.createVMIOn("two")
	w.awaitWaiting("two", vmicontroller.ReasonClaimInUse)
	w.awaitSettled()
	if n := len(w.pods()); n != 1 {
		t.Fatalf("there are %d pods on one disk", n)
	}
	w.end("one", pod, v1.Succeeded)
	w.run("two")
}

func TestOfTwoVMIsThatStartOnOneDiskOneMakesWay(t *testing.T) {
	w := newWorld(t)
	w.createClaim()
	w.createVMIOn("one")
	w.createVMIOn("two")
	pods := map[string]*corev1.Pod{"one": w.awaitLauncher("one"), "two": w.awaitLauncher("two")}
	for _, pod := range pods {
		w.bind(pod)
	}
	var winner, loser string
	w.eventually("one of them to be handed over", func() (bool, string) {
		for name, pod := range pods {
			if w.vmi(name).Status.Phase == v1.Scheduled {
				winner = name
			} else {
				loser = name
			}
			if w.deleting(pod) && w.vmi(name).Status.Phase == v1.Scheduled {
				t.Fatalf("the pod of %s was deleted after it had been handed over", name)
			}
		}
		if winner == "" && loser != "" {
			// The kubelet's part when a guest gives way.
			for _, pod := range pods {
				if w.deleting(pod) {
					w.do("removing", client.IgnoreNotFound(w.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0))))
				}
			}
		}
		return winner != "", "none is"
	})
	for name := range pods {
		if name != winner {
			loser = name
		}
	}
	w.awaitSettled()
	if phase := w.vmi(loser).Status.Phase; phase == v1.Scheduled {
		t.Fatalf("both were handed over to their nodes on one disk")
	}
	w.phase(winner, v1.Running)
	w.awaitWaiting(loser, vmicontroller.ReasonClaimInUse)
}

func TestAPodDeletedByForceIsNotTheEndOfItsGuest(t *testing.T) {
	w := newWorld(t)
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.removePod(pod) // with a grace period of 0, under the guest
	w.awaitReady(first.Name, corev1.ConditionFalse, v1.PodNotExistsReason)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopping)
	w.do("deleting the VMI", w.client.Delete(w.ctx, first))
	w.noSuccessor(first)
	if vmi := w.vmi("vm"); vmi == nil || len(w.pods()) != 0 {
		t.Fatalf("while the guest may run, the VMI is %+v and there are %d pods", vmi, len(w.pods()))
	}
	w.phase("vm", v1.Failed) // virt-handler reports its end
	w.awaitPod(w.successor(first))
}

func TestAPodDeletedByForceIsWaitedForWithoutVirtHandler(t *testing.T) {
	w := newWorld(t)
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.removePod(pod)
	w.awaitReady(first.Name, corev1.ConditionFalse, v1.PodNotExistsReason)
	w.stop()
	w.nodeSays(corev1.ConditionUnknown, time.Minute)
	w.goesBy(2 * time.Minute)
	// The time is over, but the node's state is unknown.
	w.awaitReady(first.Name, corev1.ConditionUnknown, v1.PodNotExistsReason)
	w.awaitPrintable("vm", v1.VirtualMachineStatusUnknown)
	w.noSuccessor(first)
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.awaitPod(w.successor(first))
}

func TestAPodThatWentAfterItsEndIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	w.removePod(pod)
	w.awaitPod(w.successor(first))
}

func TestAPodThatIsBeingDeletedIsNoticedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	first := w.vmi("vm")
	w.do("deleting the pod", w.client.Delete(w.ctx, pod))
	w.awaitReady(first.Name, corev1.ConditionFalse, v1.PodTerminatingReason)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopping)
	w.awaitSettled()
}

func TestAReplicaWhosePodIsBeingDeletedIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.createSet(1)
	w.awaitReplicas(1)
	first := w.activeVMIs()[0]
	pod := w.run(first.Name)
	w.do("deleting the pod", w.client.Delete(w.ctx, pod))
	w.eventually("a replacement beside it", func() (bool, string) {
		n := len(w.activeVMIs())
		return n == 2, fmt.Sprintf("there are %d VMIs", n)
	})
	if vmi := w.vmi(first.Name); vmi == nil || vmi.DeletionTimestamp != nil {
		t.Errorf("the guest that ends was not left to end: %+v", vmi)
	}
	w.end(first.Name, pod, v1.Succeeded)
	w.awaitReplicas(1)
}

func TestAGuestOnANodeThatDoesNotAnswerIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	first := w.vmi("vm")
	ready := func(pod, node corev1.ConditionStatus) func(*corev1.PodStatus) {
		w.nodeSays(node, time.Minute)
		return func(s *corev1.PodStatus) {
			s.Phase = corev1.PodRunning
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: pod}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		}
	}
	w.podStatus(pod, ready(corev1.ConditionTrue, corev1.ConditionTrue))
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	// Kubernetes does this to the pods of a silent node.
	w.podStatus(pod, ready(corev1.ConditionFalse, corev1.ConditionUnknown))
	w.awaitReady(first.Name, corev1.ConditionFalse, vmistatus.ReasonNodeLost)
	if vm := w.awaitPrintable("vm", v1.VirtualMachineStatusUnknown); vm.Status.Ready {
		t.Error("the VM is said to be ready")
	}
	w.noSuccessor(first)
	// The node is back, and virt-handler with it.
	w.podStatus(pod, ready(corev1.ConditionTrue, corev1.ConditionTrue))
	w.phase("vm", v1.Running)
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.awaitSettled()
}

// The pod has no owner, and no scheduler takes it.
func (w *world) mount(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Spec: corev1.PodSpec{
		SchedulerName: "nobody", TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName}}}},
	}}
	w.do("creating a pod on the claim", w.client.Create(w.ctx, pod))
	return pod
}

// awaitsUpload marks the claim for an upload.
func (w *world) awaitsUpload() {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claimName, Namespace: w.namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, layout.AnnUploadTarget)
	w.do("marking the claim", w.client.Patch(w.ctx, claim, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// TestAClaimIsFilledByNobodyBesideAGuest marks a running guest's claim for an upload, and starts a guest on a marked
// claim that is being filled. Neither may have both.
func TestAClaimIsFilledByNobodyBesideAGuest(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claimName, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	w.do("creating the claim", w.client.Create(w.ctx, claim))
	w.bindClaim(claimName)
	w.createVMIOn("guest")
	pod := w.run("guest")
	w.awaitsUpload()
	inUse := func(by string) {
		w.eventually("the claim to say that it is in use by "+by, func() (bool, string) {
			notes := w.awaitClaim(claimName).Annotations
			return notes[layout.AnnRunningReason] == datavolume.ReasonClaimInUse && strings.Contains(notes[layout.AnnRunningMessage], by), fmt.Sprint(notes)
		})
		if pods := w.pods(); slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == "cdi-upload-"+claimName }) {
			t.Fatalf("a worker was made for a claim that %s uses", by)
		}
	}
	inUse(pod.Name)
	other := w.mount("web")
	w.end("guest", pod, v1.Succeeded)
	inUse(other.Name)
	w.do("deleting the pod", w.client.Delete(w.ctx, other))
	worker := w.awaitWorker("cdi-upload-" + claimName)

	w.createVMIOn("next")
	w.eventually("the VMI to say what it waits for", func() (bool, string) {
		vmi := w.vmi("next")
		return vmi.Status.Phase == v1.Pending && strings.Contains(fmt.Sprint(vmi.Status.Conditions), "awaits an upload"), fmt.Sprintf("%+v", vmi.Status)
	})
	w.works(worker)
	w.ends(worker, 0, transfer.Result{Reason: transfer.ReasonCompleted})
	w.run("next")
}

// TestAClaimIsFreeWhenItsMarkIsGone removes the mark from a claim whose worker listens. A guest must be able to use it.
func TestAClaimIsFreeWhenItsMarkIsGone(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	w.createClaim()
	w.bindClaim(claimName)
	w.awaitsUpload()
	worker := w.awaitWorker("cdi-upload-" + claimName)
	w.works(worker)
	w.createVMIOn("guest")
	w.eventually("the VMI to wait", func() (bool, string) {
		vmi := w.vmi("guest")
		return strings.Contains(fmt.Sprint(vmi.Status.Conditions), "awaits an upload"), fmt.Sprintf("%+v", vmi.Status)
	})
	claim := w.awaitClaim(claimName)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, layout.AnnUploadTarget)
	w.do("taking the mark off", w.client.Patch(w.ctx, claim, client.RawPatch(types.MergePatchType, []byte(patch))))
	w.awaitPodDeletion(worker)
	w.run("guest")
	var service corev1.Service
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(worker), &service); !apierrors.IsNotFound(err) {
		t.Errorf("the Service of the worker is left: %v", err)
	}
}

// TestAClaimIsNotFilledUnderAGuestWhosePodIsGone deletes a guest's pod by force while the guest runs. The claim must
// not be filled.
func TestAClaimIsNotFilledUnderAGuestWhosePodIsGone(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	w.nodeSays(corev1.ConditionTrue, time.Hour)
	w.createClaim()
	w.bindClaim(claimName)
	w.createVMIOn("guest")
	pod := w.run("guest")
	w.removePod(pod)
	w.awaitReady("guest", corev1.ConditionFalse, v1.PodNotExistsReason)
	w.awaitsUpload()
	w.eventually("the claim to say that the guest has it", func() (bool, string) {
		notes := w.awaitClaim(claimName).Annotations
		return notes[layout.AnnRunningReason] == datavolume.ReasonClaimInUse && strings.Contains(notes[layout.AnnRunningMessage], "VMI guest"), fmt.Sprint(notes)
	})
	w.phase("guest", v1.Failed) // virt-handler reports its end
	w.awaitWorker("cdi-upload-" + claimName)
}

// TestAGuestStartsAgainOnADiskThatWasMarked marks the claim of a guest for an upload after it was filled, without a
// request to replace the disk.
func TestAGuestStartsAgainOnADiskThatWasMarked(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	w.createClaim()
	w.bindClaim(claimName)
	w.createVMIOn("guest")
	pod := w.run("guest")
	w.awaitsUpload()
	w.end("guest", pod, v1.Succeeded)
	worker := w.awaitWorker("cdi-upload-" + claimName)
	w.createVMIOn("next")
	w.works(worker)
	w.ends(worker, 1, transfer.Result{Reason: transfer.ReasonHasContent, Message: "the claim has a disk"})
	w.awaitPodDeletion(worker)
	w.run("next")
}

// TestAGuestThatIsAboutToStartGivesWayToAnUpload marks the claim when the guest's pod exists without a node.
func TestAGuestThatIsAboutToStartGivesWayToAnUpload(t *testing.T) {
	w := newWorld(t)
	w.createClaim()
	w.createVMIOn("guest")
	pod := w.awaitLauncher("guest")
	w.awaitsUpload()
	w.bind(pod)
	w.awaitPodDeletion(pod)
	if phase := w.vmi("guest").Status.Phase; phase == v1.Scheduled {
		t.Fatal("the guest was handed over to its node on a claim that awaits an upload")
	}
}
