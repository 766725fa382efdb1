//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
)

// budget returns the disruption budget of the VMI, or nil.
func (w *world) budget() *policyv1.PodDisruptionBudget {
	w.t.Helper()
	var budget policyv1.PodDisruptionBudget
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: hotplugpod.Prefix(w.vmi("vmi"))}, &budget)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do("reading the disruption budget", err)
	return &budget
}

func (w *world) forbidBudgets() *corev1.ResourceQuota {
	w.t.Helper()
	const budgets = "count/poddisruptionbudgets.policy"
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-budgets", Namespace: w.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{budgets: resource.MustParse("0")}},
	}
	w.do("creating the quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		probe := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: w.namespace}}
		err := w.client.Create(w.ctx, probe, client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	return quota
}

func (w *world) warnings(object client.Object, reason string) []string {
	w.t.Helper()
	var list corev1.EventList
	w.do("listing events", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var said []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.InvolvedObject.UID == object.GetUID() && e.Type == corev1.EventTypeWarning && e.Reason == reason {
			said = append(said, e.Message)
		}
	}
	return said
}

func TestARefusedBudgetIsToldAndHoldsUpOnlyWhatIsNew(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.claim("b", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	quota := w.forbidBudgets()
	w.do("deleting the budget by hand", w.client.Delete(w.ctx, w.budget()))

	// A deleted attachment pod must be made again, with or without a budget.
	w.history.DeleteExternally(string(first.UID))
	w.do("deleting the pod by hand", w.client.Delete(w.ctx, &first))
	successor := w.awaitAttachmentPods(2)[1]
	w.start(&successor)
	w.setVolume("a", v1.VolumeReady, &successor)
	w.removePod(&first)

	w.add("b")
	name := hotplugpod.Prefix(w.vmi("vmi"))
	w.eventually("volume b to say what it waits for", func() (bool, string) {
		s := w.volume("b")
		return s != nil && s.Reason == hotplug.ReasonAttachFailed && strings.Contains(s.Message, name) &&
			strings.Contains(s.Message, "exceeded quota: no-budgets"), fmt.Sprintf("%+v", s)
	})
	w.eventually("an event to say it", func() (bool, string) {
		said := w.warnings(w.vmi("vmi"), "FailedCreate")
		return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, name) && strings.Contains(s, "exceeded quota") }), fmt.Sprint(said)
	})
	if pods := w.attachmentPods(); len(pods) != 1 || pods[0].UID != successor.UID {
		t.Errorf("an attachment pod was made for the new volume without a budget: %v", len(pods))
	}

	w.do("lifting the quota", w.client.Delete(w.ctx, quota))
	both := w.awaitAttachmentPods(2)
	if w.budget() == nil {
		t.Error("the pod was made before the budget")
	}
	w.plug(&both[1])
	if s := w.volume("b"); s.Message != "" {
		t.Errorf("volume b still says %q", s.Message)
	}
}

func TestABudgetThatSomebodyUndoesIsRestored(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	pod := w.awaitAttachmentPods(1)[0]
	w.plug(&pod)
	whole := w.budget()
	isRight := func(why string) {
		t.Helper()
		w.eventually("the budget to be restored after: "+why, func() (bool, string) {
			b := w.budget()
			return hotplugpod.JudgeProtection(w.vmi("vmi"), b) == hotplug.BudgetRight, fmt.Sprintf("%+v", b)
		})
		w.awaitSettled()
	}
	w.do("deleting the budget", w.client.Delete(w.ctx, whole))
	isRight("it was deleted")
	for why, edit := range map[string]func(*policyv1.PodDisruptionBudget){
		"every eviction was allowed": func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, new(intstr.FromString("100%"))
		},
		"it selects no pod, and is not found by its label any more": func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}
			delete(b.Labels, v1.AppLabel)
		},
	} {
		w.eventually("the budget to be changed: "+why, func() (bool, string) {
			b := w.budget()
			before := b.DeepCopy()
			edit(b)
			err := w.client.Patch(w.ctx, b, client.MergeFrom(before))
			return err == nil, fmt.Sprint(err)
		})
		isRight(why)
	}
	if left := w.awaitAttachmentPods(1); left[0].UID != pod.UID || left[0].DeletionTimestamp != nil {
		t.Error("the attachment pod was touched")
	}
}

func TestAForeignBudgetIsReportedAndLeftAndDelaysNoOtherVMI(t *testing.T) {
	w := newPlugWorld(t)
	foreign := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: hotplugpod.Prefix(w.vmi("vmi"))},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	w.do("making the foreign budget", w.client.Create(w.ctx, foreign))
	w.claim("a", "")
	w.claim("b", "")
	w.add("a")
	w.eventually("the volume's status to name the foreign budget", func() (bool, string) {
		s := w.volume("a")
		return s != nil && strings.Contains(s.Message, foreign.Name) && strings.Contains(s.Message, "exists and is not Drydock's"), fmt.Sprintf("%+v", s)
	})

	w.createVMI("other")
	w.run("other")
	w.plugInto("other", "b")
	w.eventually("the attachment pod of the other VMI", func() (bool, string) {
		pods := w.attachmentPods()
		return len(pods) == 1 && pods[0].Labels[v1.CreatedByLabel] == string(w.vmi("other").UID), fmt.Sprint(len(pods))
	})

	now := &policyv1.PodDisruptionBudget{}
	w.do("reading the foreign budget", w.client.Get(w.ctx, client.ObjectKeyFromObject(foreign), now))
	if now.ResourceVersion != foreign.ResourceVersion && (now.Spec.MaxUnavailable == nil || len(now.OwnerReferences) > 0) {
		t.Errorf("the foreign budget was written: %+v", now)
	}
	w.do("deleting the foreign budget", w.client.Delete(w.ctx, foreign))
	w.eventually("an attachment pod of the first VMI", func() (bool, string) {
		return slices.ContainsFunc(w.attachmentPods(), func(p corev1.Pod) bool { return p.Labels[v1.CreatedByLabel] == string(w.vmi("vmi").UID) }),
			fmt.Sprintf("%+v", w.volume("a"))
	})
}

// plugInto adds a claim to a VMI.
func (w *plugWorld) plugInto(name, claim string) {
	w.t.Helper()
	w.eventually("VMI "+name+" to be changed", func() (bool, string) {
		vmi := w.vmi(name)
		before := vmi.DeepCopy()
		source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
		source.ClaimName = claim
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
		err := w.client.Patch(w.ctx, vmi, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}
