//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/hotplug/invariant"
	"drydock.dev/drydock/test/hotplugwatch"
)

// plugWorld is a world with one running VMI, to which volumes are added and from which they are removed. The test plays
// scheduler, kubelet and virt-handler. It checks the invariants at all times.
type plugWorld struct {
	*world
	history *invariant.History
}

func newPlugWorld(t *testing.T) *plugWorld {
	t.Helper()
	w := &plugWorld{world: newWorld(t)}
	w.createVMI("vmi")
	w.run("vmi")
	c, err := client.NewWithWatch(w.config, client.Options{Scheme: newScheme()})
	w.do("making a client that watches", err)
	w.history = hotplugwatch.AttachmentPods(t, c, w.namespace, "vmi")
	return w
}

func (w *plugWorld) claim(name, node string) {
	w.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: "none",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: w.namespace, Name: name},
		},
	}
	if node != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	w.do("creating the volume", w.client.Create(w.ctx, pv))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), pv) })
	w.pendingClaim(name, pv.Name)
	// The test plays the binding, too, so it waits for nobody.
	var claim corev1.PersistentVolumeClaim
	w.eventually("claim "+name+" to be bound", func() (bool, string) {
		key := client.ObjectKey{Namespace: w.namespace, Name: name}
		w.do("reading the claim", w.client.Get(w.ctx, key, &claim))
		if claim.Status.Phase == corev1.ClaimBound {
			return true, ""
		}
		claim.Status.Phase = corev1.ClaimBound
		err := w.client.Status().Update(w.ctx, &claim)
		return err == nil, fmt.Sprint(err)
	})
}

func (w *plugWorld) pendingClaim(name, volume string) {
	w.t.Helper()
	w.do("creating the claim", w.client.Create(w.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("none"), VolumeName: volume,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}))
}

func (w *plugWorld) edit(change func(*v1.VirtualMachineInstance)) {
	w.t.Helper()
	w.eventually("the VMI to be changed", func() (bool, string) {
		vmi := w.vmi("vmi")
		before := vmi.DeepCopy()
		change(vmi)
		err := w.client.Patch(w.ctx, vmi, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

// add plugs claims of the same names.
func (w *plugWorld) add(names ...string) {
	w.t.Helper()
	w.edit(func(vmi *v1.VirtualMachineInstance) {
		for _, name := range names {
			source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
			source.ClaimName = name
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
		}
	})
}

func (w *plugWorld) remove(name string) {
	w.t.Helper()
	w.edit(func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = slices.DeleteFunc(vmi.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	})
}

// volume returns a volume's status, or nil.
func (w *plugWorld) volume(name string) *v1.VolumeStatus {
	vmi := w.vmi("vmi")
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == name {
			return s
		}
	}
	return nil
}

func (w *plugWorld) awaitVolume(name string, phase v1.VolumePhase) *v1.VolumeStatus {
	w.t.Helper()
	var s *v1.VolumeStatus
	w.eventually(fmt.Sprintf("volume %s to be %s", name, phase), func() (bool, string) {
		s = w.volume(name)
		return s != nil && s.Phase == phase, fmt.Sprintf("%+v", s)
	})
	return s
}

func (w *plugWorld) awaitNoVolume(name string) {
	w.t.Helper()
	w.eventually("volume "+name+" to be gone", func() (bool, string) {
		s := w.volume(name)
		return s == nil, fmt.Sprintf("%+v", s)
	})
}

// setVolume plays a virt-handler that reports a phase, with the attachment pod if one is given.
func (w *plugWorld) setVolume(name string, phase v1.VolumePhase, through *corev1.Pod) {
	w.t.Helper()
	w.edit(func(vmi *v1.VirtualMachineInstance) {
		for i := range vmi.Status.VolumeStatus {
			if s := &vmi.Status.VolumeStatus[i]; s.Name == name {
				s.Phase = phase
				if through != nil {
					s.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: through.Name, AttachPodUID: through.UID}
				}
			}
		}
	})
}

func (w *plugWorld) attachmentPods() []corev1.Pod {
	w.t.Helper()
	pods := w.pods()
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Labels[v1.AppLabel] != layout.AttachmentApp })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(generation(a.Name), generation(b.Name)) })
	return pods
}

// Names sort by the padded number.
func generation(name string) string { return fmt.Sprintf("%4s", name[strings.LastIndex(name, "-"):]) }

func (w *plugWorld) awaitAttachmentPods(n int) []corev1.Pod {
	w.t.Helper()
	var pods []corev1.Pod
	w.eventually(fmt.Sprintf("%d attachment pods", n), func() (bool, string) {
		pods = w.attachmentPods()
		var names []string
		for _, p := range pods {
			names = append(names, fmt.Sprint(p.Name, volumes(&p), p.DeletionTimestamp))
		}
		return len(pods) == n, strings.Join(names, ", ")
	})
	return pods
}

func volumes(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		names = append(names, v.Name)
	}
	return names
}

// start plays scheduler and kubelet.
func (w *plugWorld) start(pod *corev1.Pod) {
	w.t.Helper()
	w.bind(pod)
	w.runs(pod)
}

// runs plays the kubelet that has started an attachment pod.
func (w *plugWorld) runs(pod *corev1.Pod) {
	w.t.Helper()
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.AttachmentContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
}

// plug makes the volumes of one pod Ready.
func (w *plugWorld) plug(pod *corev1.Pod) {
	w.t.Helper()
	w.start(pod)
	for _, name := range volumes(pod) {
		if s := w.awaitVolume(name, v1.HotplugVolumeAttachedToNode); s.HotplugVolume.AttachPodUID != pod.UID {
			w.t.Errorf("volume %s names pod %s, not %s", name, s.HotplugVolume.AttachPodName, pod.Name)
		}
		w.setVolume(name, v1.HotplugVolumeMounted, nil)
		w.setVolume(name, v1.VolumeReady, nil)
	}
}

// unplug removes a volume from the guest.
func (w *plugWorld) unplug(name string) {
	w.t.Helper()
	w.remove(name)
	w.setVolume(name, v1.HotplugVolumeDetaching, nil)
	w.setVolume(name, v1.HotplugVolumeUnMounted, nil)
}

func TestAVolumeComesAndGoesWithoutTouchingAnother(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.claim("b", "")
	w.awaitSettled()
	before := len(w.writes.of(w.namespace))
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	if owner := metav1.GetControllerOf(&first); owner == nil || owner.Kind != "Pod" {
		t.Errorf("the attachment pod does not belong to the launcher pod: %+v", owner)
	}
	var protection policyv1.PodDisruptionBudget
	w.do("reading the disruption budget", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: hotplugpod.Prefix(w.vmi("vmi"))}, &protection))
	w.plug(&first)
	w.awaitSettled()
	cost := w.writes.of(w.namespace)[before:]
	slices.Sort(cost)
	// The record, the budget (once for a VMI), the pod and its event, AttachedToNode.
	if want := []string{"PATCH virtualmachineinstances", "PATCH virtualmachineinstances", "POST events", "POST poddisruptionbudgets", "POST pods"}; !slices.Equal(cost, want) {
		t.Errorf("a plug costs %q, want %q", cost, want)
	}

	w.add("b")
	both := w.awaitAttachmentPods(2)
	w.plug(&both[1])
	w.unplug("a")
	w.awaitNoAttachmentPod(&first)
	w.awaitNoVolume("a")
	w.awaitSettled()
	if left := w.awaitAttachmentPods(1); left[0].UID != both[1].UID || left[0].DeletionTimestamp != nil {
		t.Errorf("the pod of volume b was touched")
	}
	w.awaitHistory(2, 1)
}

// awaitHistory waits until the test's watch has seen that many attachment pods in all, and has that many left.
func (w *plugWorld) awaitHistory(ever, now int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d pods to be made and %d to be left", ever, now), func() (bool, string) {
		made, left := w.history.Pods()
		return made == ever && left == now, fmt.Sprintf("%d were made and %d are left", made, left)
	})
}

// awaitNoAttachmentPod waits until a pod is being deleted, and plays the kubelet's part.
func (w *plugWorld) awaitNoAttachmentPod(pod *corev1.Pod) {
	w.t.Helper()
	w.awaitPodDeletion(pod)
	w.removePod(pod)
}

func TestAVolumeThatCannotBeAttachedSaysWhyAndDelaysNoOther(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("elsewhere", "another-node")
	w.pendingClaim("pending", "")
	w.claim("good", "")
	w.add("elsewhere", "pending", "missing", "good")
	pod := w.awaitAttachmentPods(1)[0]
	w.plug(&pod)
	for name, want := range map[string]string{
		"elsewhere": "PVC elsewhere can't be used on node " + testNode,
		"pending":   "PVC pending is in phase Pending",
		"missing":   "PVC missing does not exist, waiting for it to appear",
	} {
		if s := w.awaitVolume(name, v1.VolumePending); !strings.HasPrefix(s.Message, want) {
			t.Errorf("volume %s says %q, want %q", name, s.Message, want)
		}
	}
	w.claim("missing", "")
	w.awaitAttachmentPods(2)
	w.remove("pending")
	w.awaitNoVolume("pending")
}

func TestWhoeverTakesAPodAwayIsFollowedByAnother(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	w.history.DeleteExternally(string(first.UID))
	w.do("deleting the pod by hand", w.client.Delete(w.ctx, &first))
	both := w.awaitAttachmentPods(2)
	w.start(&both[1])
	w.setVolume("a", v1.VolumeReady, &both[1])
	w.removePod(&first)
	w.awaitSettled()
	if left := w.awaitAttachmentPods(1); left[0].UID != both[1].UID {
		t.Errorf("the successor is gone")
	}
}

func TestManyAttachmentPodsAreMergedByAHandover(t *testing.T) {
	w := newPlugWorld(t)
	const volumes = 6
	for i := range volumes {
		name := fmt.Sprintf("v%d", i)
		w.claim(name, "")
		w.add(name)
		w.plug(&w.awaitAttachmentPods(i + 1)[i])
	}
	w.awaitSettled()
	w.goesBy(time.Minute)
	pods := w.awaitAttachmentPods(volumes + 1)
	merged := pods[volumes]
	w.start(&merged)
	w.awaitSettled() // nothing may be deleted before virt-handler has handed over
	for _, v := range merged.Spec.Volumes {
		w.setVolume(v.Name, v1.VolumeReady, &merged)
	}
	for i := range pods {
		if pods[i].UID != merged.UID && slices.ContainsFunc(merged.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == pods[i].Spec.Volumes[0].Name }) {
			w.awaitNoAttachmentPod(&pods[i])
		}
	}
	w.awaitAttachmentPods(4)
	w.awaitSettled()
}

// TestTheLoopMayEndAtAnyMomentOfAPlug restarts the loops again and again. The invariants must hold.
func TestTheLoopMayEndAtAnyMomentOfAPlug(t *testing.T) {
	w := newPlugWorld(t)
	for i := range 4 {
		w.claim(fmt.Sprintf("v%d", i), "")
	}
	for i := range 4 {
		w.add(fmt.Sprintf("v%d", i))
		// The test varies the moment; it waits for nothing.
		time.Sleep(time.Duration(i) * 10 * time.Millisecond)
		w.restartLoops()
		pods := w.awaitAttachmentPods(i + 1)
		w.plug(&pods[i])
	}
	for i := range 4 {
		w.unplug(fmt.Sprintf("v%d", i))
		time.Sleep(time.Duration(i) * 10 * time.Millisecond)
		w.restartLoops()
	}
	for _, pod := range w.attachmentPods() {
		w.awaitNoAttachmentPod(&pod)
	}
	for i := range 4 {
		w.awaitNoVolume(fmt.Sprintf("v%d", i))
	}
	w.awaitHistory(4, 0)
}

// A tenant who may make pods can make one of an attachment pod's predictable name first. It must be reported and
// not used.
func TestAForeignPodOfAnAttachmentPodsNameIsReportedAndNotUsed(t *testing.T) {
	w := newPlugWorld(t)
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: hotplugpod.Prefix(w.vmi("vmi")) + "-1",
			Annotations: map[string]string{v1.DomainAnnotation: "vmi"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: layout.AttachmentContainer, Image: "evil"}}},
	}
	w.do("making the foreign pod", w.client.Create(w.ctx, foreign))
	w.claim("a", "")
	w.add("a")
	w.eventually("the volume's status to name the foreign pod", func() (bool, string) {
		s := w.volume("a")
		return s != nil && strings.Contains(s.Message, "pod "+foreign.Name+" exists and is not Drydock's"), fmt.Sprintf("%+v", s)
	})
	if s := w.volume("a"); s.HotplugVolume.AttachPodUID != "" {
		t.Errorf("the volume is said to come from it: %+v", s.HotplugVolume)
	}
	w.do("deleting the foreign pod", w.client.Delete(w.ctx, foreign, client.GracePeriodSeconds(0)))
	pod := w.awaitAttachmentPods(1)[0]
	w.start(&pod)
	s := w.awaitVolume("a", v1.HotplugVolumeAttachedToNode)
	record, err := hotplug.ReadRecord(w.vmi("vmi").Annotations)
	if err != nil || s.HotplugVolume.AttachPodUID != pod.UID || !record.Has(pod.Name, pod.UID) {
		t.Errorf("pod %s is not recorded as the one that serves: %+v, %+v (%v)", pod.UID, record, s.HotplugVolume, err)
	}
}

func TestTheAttachmentPodsGoWithTheGuest(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	pod := w.awaitAttachmentPods(1)[0]
	w.plug(&pod)
	w.do("deleting the VMI", w.client.Delete(w.ctx, w.vmi("vmi")))
	w.awaitSettled() // a guest that shuts down still writes
	w.phase("vmi", v1.Succeeded)
	w.awaitNoAttachmentPod(&pod)
}
