package hotplug

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/attachmentpods"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

const (
	// stuckAfter is several times a pod's start time on a busy node.
	stuckAfter = 10 * time.Second
	// coolingFor is the age at which an ended pod is replaced: a kubelet may reject each one.
	coolingFor = 10 * time.Second
	// settleFor must pass without a change before pods are merged.
	settleFor = 30 * time.Second
)

// observation also has the objects from which the facts were taken.
type observation struct {
	hotplug.Observed
	vmi      *v1.VirtualMachineInstance
	launcher *corev1.Pod
	// host is the pod for which new attachment pods are created: launcher or, during a migration, the target; nil if
	// it is unknown.
	host   *corev1.Pod
	budget *policyv1.PodDisruptionBudget
	claims map[string]*corev1.PersistentVolumeClaim
	// after is when to look again although nothing happens, zero for never.
	after time.Duration
}

func (s *observation) lookAgain(after time.Duration) {
	s.after = backoff.Sooner(s.after, max(after, time.Millisecond))
}

// observe gathers the facts for a decision, nil if the VMI does not exist. With live it asks the API server, for the pods
// first: so the VMI is at least as new as the record of each pod.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName, live bool) (*observation, error) {
	s := &observation{claims: map[string]*corev1.PersistentVolumeClaim{}}
	reader, vmi := client.Reader(r.Client), &v1.VirtualMachineInstance{}
	var pods corev1.PodList
	if live {
		reader = r.Reader
		labels := client.MatchingLabels{v1.AppLabel: layout.AttachmentApp}
		if err := r.Reader.List(ctx, &pods, client.InNamespace(key.Namespace), labels); err != nil {
			return nil, fmt.Errorf("asking for the attachment pods of VMI %s: %w", key, err)
		}
	}
	if err := reader.Get(ctx, key, vmi); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	s.vmi = r.written.Newer(vmi)
	s.MaxAttachmentPods, s.Prefix, s.Live = r.MaxAttachmentPods, hotplugpod.Prefix(s.vmi), live
	s.Stage = hotplug.Frozen
	if s.Entries = hotplug.EntriesOf(s.vmi); !concerned(s.vmi) {
		return s, nil
	}
	if !live {
		if err := r.listPods(ctx, key, &pods); err != nil {
			return nil, err
		}
	}
	record, err := hotplug.ReadRecord(s.vmi.Annotations)
	if err != nil {
		// The record is rebuilt from the present pods.
		ctrl.LoggerFrom(ctx).Error(err, "the record of the attachment pods was made unreadable")
	}
	s.Record = record
	if err := r.observeLauncher(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observePods(ctx, s, pods.Items); err != nil {
		return nil, err
	}
	if err := r.observeBudget(ctx, s); err != nil {
		return nil, err
	}
	s.Failures = r.memory.failures(key)
	switch s.Stage {
	case hotplug.Frozen, hotplug.Over:
		return s, nil
	case hotplug.Moving:
		return s, r.observeDestinations(ctx, s)
	}
	return s, r.observeWanted(ctx, s)
}

func (r *Reconciler) listPods(ctx context.Context, key types.NamespacedName, pods *corev1.PodList) error {
	err := r.Client.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingFields{podIndex: key.Name})
	if err != nil {
		return fmt.Errorf("listing the attachment pods of VMI %s: %w", key, err)
	}
	return nil
}

func (r *Reconciler) observeLauncher(ctx context.Context, s *observation) error {
	pod, err := versioned.Read[corev1.Pod](ctx, r.Client, "the launcher pod", types.NamespacedName{Namespace: s.vmi.Namespace, Name: launcherpod.CurrentName(s.vmi)})
	if err != nil {
		return err
	}
	if pod != nil && launcherpod.BondOf(pod, s.vmi) >= launcherpod.Whole {
		s.launcher = pod
	}
	s.Stage, s.Move = stage(s.vmi, s.launcher), hotplug.MoveOf(s.vmi)
	if s.host = s.launcher; s.Stage != hotplug.Moving {
		return nil
	}
	target, err := versioned.Read[corev1.Pod](ctx, r.Client, "the target pod", types.NamespacedName{Namespace: s.vmi.Namespace, Name: s.vmi.Status.MigrationState.TargetPod})
	if s.host = target; target != nil && (launcherpod.BondOf(target, s.vmi) != launcherpod.Chosen || podstatus.Terminal(target)) {
		s.host = nil
	}
	return err
}

func stage(vmi *v1.VirtualMachineInstance, launcher *corev1.Pod) hotplug.Stage {
	switch {
	case vmi.IsFinal():
		return hotplug.Over
	case launcher == nil || launcher.Spec.NodeName == "", // the VMI is Scheduled, so the cache is late
		vmi.Status.Phase != v1.Scheduled && vmi.Status.Phase != v1.Running:
		return hotplug.Frozen
	case migration.InFlight(vmi):
		if vmi.DeletionTimestamp != nil {
			return hotplug.Frozen
		}
		return hotplug.Moving
	case vmi.DeletionTimestamp != nil || launcher.DeletionTimestamp != nil || podstatus.Terminal(launcher):
		return hotplug.Ending
	}
	return hotplug.Active
}

func (r *Reconciler) observePods(ctx context.Context, s *observation, pods []corev1.Pod) error {
	now := r.Now()
	youngest := time.Time{}
	s.Settled = true
	for i := range pods {
		pod := &pods[i]
		if !hotplugpod.IsOf(pod, s.vmi) {
			continue
		}
		seen := hotplugpod.Observe(pod)
		if err := r.locate(ctx, s, pod, &seen); err != nil {
			return err
		}
		age := now.Sub(seen.Created)
		if err := r.observeScheduling(ctx, s, pod, &seen); err != nil {
			return err
		}
		if err := r.observeStart(ctx, s, pod, &seen, age); err != nil {
			return err
		}
		if seen.Finished && age < coolingFor {
			seen.Cooling = true
			s.lookAgain(coolingFor - age)
		}
		if seen.Created.After(youngest) {
			youngest = seen.Created
		}
		s.Settled = s.Settled && !seen.Terminating
		s.Pods = append(s.Pods, seen)
	}
	if wait := settleFor - now.Sub(youngest); s.Settled && wait > 0 {
		s.Settled = false
		if len(s.Record.Pods) > r.MaxAttachmentPods {
			s.lookAgain(wait)
		}
	}
	return nil
}

// locate determines whether a pod is on another node than the guest, and whether the guest has left that node.
func (r *Reconciler) locate(ctx context.Context, s *observation, pod *corev1.Pod, seen *hotplug.Pod) error {
	node := hotplugpod.Node(pod)
	if s.launcher == nil || node == "" || node == s.launcher.Spec.NodeName {
		return nil
	}
	launcher, err := r.madeFor(ctx, pod)
	seen.Elsewhere, seen.Left = true, left(s.vmi, node, launcher)
	return err
}

// left reports whether no process of the guest on a node has its volumes open: none of the VMI's launcher pods is
// there, and the one for which the attachment pods were created has ended. A target's QEMU ends after its pod has
// ceased to be the VMI's.
func left(vmi *v1.VirtualMachineInstance, node string, launcher *corev1.Pod) bool {
	for _, at := range vmi.Status.ActivePods {
		if at == node {
			return false
		}
	}
	return launcher == nil || podstatus.Terminal(launcher)
}

// madeFor returns the launcher pod for which an attachment pod was created, nil if it does not exist.
func (r *Reconciler) madeFor(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	// A late cache is no proof: the attachment pod would be deleted while the launcher pod has its volumes open.
	for _, reader := range []client.Reader{r.Client, r.Reader} {
		launcher, err := versioned.Read[corev1.Pod](ctx, reader, "the launcher pod", types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
		if err != nil || launcher != nil && launcher.UID == owner.UID {
			return launcher, err
		}
	}
	return nil, nil
}

// observeStart determines why a pod of that age does not run yet: from its status or, after a long wait, its events.
func (r *Reconciler) observeStart(ctx context.Context, s *observation, pod *corev1.Pod, seen *hotplug.Pod, age time.Duration) error {
	if seen.Running || seen.Terminating || seen.Finished {
		return nil
	}
	seen.Why = hotplugpod.Obstacle(pod)
	seen.Stuck = age >= stuckAfter || hotplugpod.Unschedulable(pod)
	switch {
	case !seen.Stuck:
		s.lookAgain(stuckAfter - age)
	case seen.Why == "":
		why, err := attachmentpods.Obstacle(ctx, r.Reader, pod)
		if err != nil {
			return err
		}
		seen.Why = why
		s.lookAgain(stuckAfter)
	}
	return nil
}

// observeScheduling determines whether the pod waits only for the scheduler, since all its claims are bound.
func (r *Reconciler) observeScheduling(ctx context.Context, s *observation, pod *corev1.Pod, seen *hotplug.Pod) error {
	if !podstatus.BeingScheduled(pod) {
		return nil
	}
	reader := client.Reader(r.Client)
	if s.Live {
		reader = r.Reader
	}
	for _, v := range seen.Volumes {
		claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, reader, "the claim", types.NamespacedName{Namespace: pod.Namespace, Name: v.Claim})
		if err != nil || claim == nil || claim.Status.Phase != corev1.ClaimBound {
			return err
		}
	}
	seen.Scheduling = true
	return nil
}

func (r *Reconciler) observeWanted(ctx context.Context, s *observation) error {
	for i := range s.vmi.Spec.Volumes {
		v := &s.vmi.Spec.Volumes[i]
		for _, volume := range hotplug.VolumesOf(&v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{*v}}) {
			facts, err := r.claimFacts(ctx, s, volume, v.DataVolume != nil)
			if err != nil {
				return err
			}
			s.claims[volume.Claim] = facts.Claim
			s.Wanted = append(s.Wanted, hotplug.WantedOf(facts))
		}
	}
	return r.observeUtility(ctx, s)
}

// observeUtility adds the volumes that are no disks. Each has a pod of its own, so that no disk waits for it.
func (r *Reconciler) observeUtility(ctx context.Context, s *observation) error {
	for _, volume := range hotplug.VolumesOf(&v1.VirtualMachineInstanceSpec{UtilityVolumes: s.vmi.Spec.UtilityVolumes}) {
		facts, err := r.claimFacts(ctx, s, volume, false)
		if err != nil {
			return err
		}
		s.claims[volume.Claim] = facts.Claim
		wanted := hotplug.WantedOf(facts)
		wanted.Alone = true
		s.Wanted = append(s.Wanted, wanted)
	}
	return nil
}

func (r *Reconciler) observeDestinations(ctx context.Context, s *observation) error {
	s.Destinations = hotplug.DestinationsOf(s.vmi)
	for i := range s.Destinations {
		d := &s.Destinations[i]
		f := hotplug.ClaimFacts{Volume: d.To}
		if err := r.readClaim(ctx, s, &f); err != nil {
			return err
		}
		s.claims[d.To.Claim], d.Unfilled = f.Claim, !f.Filled()
	}
	return nil
}

// maintenancePause is how often to look for maintenance pods that keep a volume from being plugged.
const maintenancePause = 5 * time.Second

// observeMaintainers asks the API server for the maintenance pods on, and the fillers of, the claims to be plugged.
func (r *Reconciler) observeMaintainers(ctx context.Context, s *observation) error {
	var claims []string
	for i := range s.Wanted {
		claims = append(claims, s.Wanted[i].Claim)
	}
	for i := range s.Destinations {
		claims = append(claims, s.Destinations[i].To.Claim)
	}
	s.Maintainers, s.MaintainersAsked = map[string]hotplug.Maintainer{}, true
	for _, claim := range claims {
		key := types.NamespacedName{Namespace: s.vmi.Namespace, Name: claim}
		rival, is, err := maintainers.OnClaim(ctx, r.Reader, key)
		if err != nil {
			return err
		}
		m := hotplug.Maintainer{Pod: rival.Pod, Of: rival.Maintains}
		if !is {
			filling, err := claimusers.Filling(ctx, r.Reader, key)
			if err != nil {
				return err
			}
			m, is = hotplug.Maintainer{Filling: filling}, filling != ""
		}
		if is {
			s.Maintainers[claim] = m
			s.lookAgain(maintenancePause)
		}
	}
	return nil
}

func (r *Reconciler) readClaim(ctx context.Context, s *observation, f *hotplug.ClaimFacts) error {
	key := types.NamespacedName{Namespace: s.vmi.Namespace, Name: f.Volume.Claim}
	var err error
	if f.Claim, err = versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the claim", key); err != nil {
		return err
	}
	if f.Claim != nil {
		if owner := metav1.GetControllerOf(f.Claim); owner != nil {
			key.Name = owner.Name
		}
	}
	f.DataVolume, err = versioned.Read[cdiv1.DataVolume](ctx, r.Client, "the DataVolume", key)
	return err
}

func (r *Reconciler) claimFacts(ctx context.Context, s *observation, volume hotplug.Volume, dataVolume bool) (hotplug.ClaimFacts, error) {
	f := hotplug.ClaimFacts{Volume: volume, DataVolumeNamed: dataVolume}
	err := r.readClaim(ctx, s, &f)
	if err != nil {
		return f, err
	}
	switch {
	case f.Claim == nil || served(s, volume):
		// The topology matters only before the volume is attached.
		return f, nil
	case f.Claim.Status.Phase == corev1.ClaimBound:
		if f.PV, err = versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume", types.NamespacedName{Name: f.Claim.Spec.VolumeName}); err != nil {
			return f, err
		}
		if f.PV != nil && f.PV.Spec.NodeAffinity != nil {
			f.Node, err = versioned.Read[corev1.Node](ctx, r.Reader, "node", types.NamespacedName{Name: s.launcher.Spec.NodeName})
		}
	case f.Claim.Spec.StorageClassName != nil && *f.Claim.Spec.StorageClassName != "":
		f.Class, err = versioned.Read[storagev1.StorageClass](ctx, r.Client, "the storage class", types.NamespacedName{Name: *f.Claim.Spec.StorageClassName})
	}
	return f, err
}

// served reports whether the claim no longer matters.
func served(s *observation, volume hotplug.Volume) bool {
	for _, e := range s.Entries {
		if e.Volume == volume && (e.Phase == v1.HotplugVolumeAttachedToNode || hotplug.InUse(e.Phase)) {
			return true
		}
	}
	return false
}
