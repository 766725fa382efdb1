//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// limitByQuota makes the namespace refuse pods without limits.
func (w *world) limitByQuota() {
	w.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: w.namespace}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		corev1.ResourceLimitsCPU: resource.MustParse("8"), corev1.ResourceLimitsMemory: resource.MustParse("8Gi"),
	}}}
	w.do("creating the quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		return len(quota.Status.Used) == 2, fmt.Sprintf("%+v", quota.Status)
	})
}

// Memory is a multiple of the request.
func (w *world) hasLimits(pod *corev1.Pod, cpus string, times int64) {
	w.t.Helper()
	r := pod.Spec.Containers[0].Resources
	if r.Limits.Cpu().Cmp(resource.MustParse(cpus)) != 0 || r.Limits.Memory().Value() != times*r.Requests.Memory().Value() {
		w.t.Errorf("the pod %s requests %v and is limited to %v, want %s CPUs and %d times the memory", pod.Name, r.Requests, r.Limits, cpus, times)
	}
}

// Provisioning pod, launcher pod and target pod must be admitted. A guest that gets more CPUs must be allowed to
// use them.
func TestAVMRunsWhereAQuotaAsksForLimits(t *testing.T) {
	w := newWorld(t)
	w.limitByQuota()
	w.createVMWithDisks("disked", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), "one")
	w.hasLimits(w.awaitProvisioning("disked"), "1", 2)

	ns := &corev1.Namespace{}
	w.do("reading the namespace", w.client.Get(w.ctx, client.ObjectKey{Name: w.namespace}, ns))
	labeled := ns.DeepCopy()
	metav1.SetMetaDataLabel(&labeled.ObjectMeta, v1.AutoMemoryLimitsRatioLabel, "3")
	w.do("labeling the namespace", w.client.Patch(w.ctx, labeled, client.MergeFrom(ns)))
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.runInNode("16")
	w.hasLimits(w.launcher(pod), "1", 3)
	w.changeTemplate(withSockets(2))
	w.awaitRequest(pod, "200m")
	w.hasLimits(w.launcher(pod), "2", 3)

	w.createVMI("vmi")
	w.run("vmi")
	w.hasLimits(w.awaitTarget(w.migrate("move", "vmi")), "1", 3)
}

// A limit range gives less than a VM requests: no impossible pod may be made. If it gives enough, its limits
// count.
func TestAVMRunsWhereALimitRangeGivesLess(t *testing.T) {
	w := newWorld(t)
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: w.namespace}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("500m")},
		DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceCPU: resource.MustParse("10m")},
	}}}}
	w.do("creating the limit range", w.client.Create(w.ctx, limits))
	w.createVMI("vmi")
	pod := w.awaitLauncher("vmi")
	w.hasLimits(pod, "500m", 2)
}
