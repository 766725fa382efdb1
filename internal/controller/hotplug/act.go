package hotplug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/pod/selinux"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
)

// The reasons of events are KubeVirt's.
const (
	reasonCreated = "SuccessfulCreate"
	reasonDeleted = "SuccessfulDelete"
	reasonFailed  = "FailedCreate"
)

// After a conflict write reports false: the newer version wakes this loop.
func (r *Reconciler) write(ctx context.Context, s *observation, plan hotplug.Plan) (again bool, err error) {
	next := s.vmi.DeepCopy()
	next.Status.VolumeStatus = statuses(s, plan.Entries)
	if text := plan.Record.Text(); text != "" {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[hotplug.RecordAnnotation] = text
	}
	hotplugspec.SettleForced(next)
	written, err := versioned.Write(ctx, r.Client, "writing the volumes of VMI", s.vmi, next)
	if err != nil || written == nil {
		return false, err
	}
	r.written.Wrote(written)
	return true, nil
}

// Volumes without a planned entry keep theirs.
func statuses(s *observation, planned []hotplug.Entry) []v1.VolumeStatus {
	var out []v1.VolumeStatus
	old := map[string]v1.VolumeStatus{}
	for _, have := range s.vmi.Status.VolumeStatus {
		if have.HotplugVolume == nil {
			out = append(out, have)
		} else {
			old[have.Name] = have
		}
	}
	for _, e := range planned {
		next := old[e.Name]
		if next.PersistentVolumeClaimInfo == nil || next.PersistentVolumeClaimInfo.ClaimName != e.Claim {
			next = v1.VolumeStatus{PersistentVolumeClaimInfo: volumeclaim.Info(e.Claim, s.claims[e.Claim]), MemoryDumpVolume: dumpOf(s.vmi, e.Volume)}
		} else if s.knowsMoreOf(next.PersistentVolumeClaimInfo) {
			next.PersistentVolumeClaimInfo = volumeclaim.Info(e.Claim, s.claims[e.Claim])
		}
		next.Name, next.Phase, next.Reason, next.Message = e.Name, e.Phase, e.Reason, e.Message
		next.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: e.PodName, AttachPodUID: e.PodUID}
		if e.PodUID == "" {
			next.Target = ""
			next.MemoryDumpVolume = dumpOf(s.vmi, e.Volume)
		}
		out = append(out, next)
	}
	slices.SortFunc(out, func(a, b v1.VolumeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// dumpOf marks the volume of a memory dump, which virt-handler does not plug.
func dumpOf(vmi *v1.VirtualMachineInstance, v hotplug.Volume) *v1.DomainMemoryDumpInfo {
	if memorydump.VolumeOf(vmi, v.Name) == nil {
		return nil
	}
	return &v1.DomainMemoryDumpInfo{ClaimName: v.Claim}
}

// knowsMoreOfClaims reports whether the status has only the name of a claim to which a migration copied a disk.
func (s *observation) knowsMoreOfClaims() bool {
	return slices.ContainsFunc(s.vmi.Status.VolumeStatus, func(have v1.VolumeStatus) bool {
		return have.HotplugVolume != nil && have.PersistentVolumeClaimInfo != nil && s.knowsMoreOf(have.PersistentVolumeClaimInfo)
	})
}

// Every claim has access modes.
func (s *observation) knowsMoreOf(info *v1.PersistentVolumeClaimInfo) bool {
	claim := s.claims[info.ClaimName]
	return claim != nil && len(info.AccessModes) == 0 && len(claim.Spec.AccessModes) > 0
}

// A failed step does not stop the others, except for pods that require the budget.
func (r *Reconciler) act(ctx context.Context, s *observation, plan hotplug.Plan) (ctrl.Result, error) {
	if len(plan.Create)+len(plan.Guarded) > 0 {
		s.lookAgain(cacheLag)
	}
	protected, err := r.protect(ctx, s)
	create := plan.Create
	if protected {
		create = slices.Concat(create, plan.Guarded)
	}
	if err := errors.Join(err, r.makePods(ctx, s, create), r.deletePods(ctx, s.vmi, plan.Delete)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.after}, nil
}

// A failure does not stop the other pods.
func (r *Reconciler) makePods(ctx context.Context, s *observation, attachmentPods []hotplug.AttachmentPod) error {
	attachmentPods = slices.DeleteFunc(attachmentPods, func(h hotplug.AttachmentPod) bool {
		return r.memory.madeLately(client.ObjectKeyFromObject(s.vmi), h.Name, r.Now())
	})
	if len(attachmentPods) == 0 || s.host == nil {
		return nil
	}
	options, err := r.selinuxOptions(ctx, s, attachmentPods)
	if errors.Is(err, selinux.ErrUnknown) {
		return nil // the node's report wakes the loop
	}
	if err != nil {
		return err
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	block, err := r.blockClaims(ctx, s, attachmentPods)
	if err != nil {
		return err
	}
	var failed []error
	for _, h := range attachmentPods {
		pod := hotplugpod.Render(hotplugpod.Input{
			VMI: s.vmi, Launcher: s.host, AttachmentPod: h, Block: block, Settings: settings, Image: r.LauncherImage,
			SELinux: options,
		})
		failed = append(failed, r.makePod(ctx, s.vmi, pod))
	}
	return errors.Join(failed...)
}

func (r *Reconciler) makePod(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(vmi)
	err := r.Client.Create(ctx, pod)
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.expectOurs(ctx, vmi, pod)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		if r.memory.failed(key, pod.Name, fmt.Sprintf("the attachment pod %s can't be made: %v", pod.Name, err)) {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeWarning, reasonFailed, "CreatePod", "Error creating attachment pod %s: %v", pod.Name, err)
		}
		return fmt.Errorf("creating the attachment pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.memory.made(key, pod.Name, r.Now())
	r.Recorder.Eventf(vmi, pod, corev1.EventTypeNormal, reasonCreated, "CreatePod", "Created attachment pod %s", pod.Name)
	return nil
}

// The cache may lack a pod of this loop. Only virt-controller can give a pod these labels
// (config/rbac/pod-policy.yaml).
func (r *Reconciler) expectOurs(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	existing, err := versioned.Read[corev1.Pod](ctx, r.Reader, "the attachment pod", client.ObjectKeyFromObject(pod))
	if err != nil || existing == nil || hotplugpod.IsOf(existing, vmi) {
		return err
	}
	foreign := hotplugpod.Foreign(pod.Name)
	if r.memory.failed(client.ObjectKeyFromObject(vmi), pod.Name, foreign) {
		r.Recorder.Eventf(vmi, nil, corev1.EventTypeWarning, reasonFailed, "CreatePod", "%s", foreign)
		return errors.New(foreign) // the loop runs again and writes it to the status
	}
	// The pod's deletion wakes nothing: the loop looks again after cacheLag.
	return nil
}

// A pod may hold a volume that the spec no longer has.
func (r *Reconciler) blockClaims(ctx context.Context, s *observation, attachmentPods []hotplug.AttachmentPod) (map[string]bool, error) {
	block := map[string]bool{}
	for _, h := range attachmentPods {
		for _, v := range h.Volumes {
			claim := s.claims[v.Claim]
			if claim == nil {
				var err error
				key := types.NamespacedName{Namespace: s.vmi.Namespace, Name: v.Claim}
				if claim, err = versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Reader, "the claim", key); err != nil {
					return nil, err
				}
			}
			if claim != nil && claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
				block[v.Claim] = true
			}
		}
	}
	return block, nil
}

func (r *Reconciler) deletePods(ctx context.Context, vmi *v1.VirtualMachineInstance, pods []hotplug.Pod) error {
	for _, p := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: p.Name, UID: p.UID}}
		gone, err := r.deletePod(ctx, pod)
		if err != nil {
			return err
		}
		if !gone && !p.Terminating {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeNormal, reasonDeleted, "DeletePod", "Deleted attachment pod %s", p.Name)
		}
	}
	return nil
}

// deletePod deletes exactly this pod, with a short grace period.
func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod) (gone bool, err error) {
	return deletion.Exact(ctx, r.Client, pod, "the attachment pod", client.GracePeriodSeconds(hotplugpod.GracePeriodSeconds))
}
