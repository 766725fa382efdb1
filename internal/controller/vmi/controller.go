// Package vmi is the loop that brings VirtualMachineInstances to a node and
// takes them away again. Package vmilifecycle decides; this package observes and
// acts.
//
// It owns the launcher pods, and of a VMI what docs/architecture.md gives to
// the controller. It must not decide: what depends on more than "did the API
// server do it" belongs to vmilifecycle.
package vmi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/objectevents"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/podlimits"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache and writes; Reader asks the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	// Settings gives the cluster's settings of the moment.
	Settings      func(context.Context) (clusterconfig.Settings, error)
	LauncherImage string
	// Now is the clock.
	Now func() time.Time

	written mutationcache.Memory[*v1.VirtualMachineInstance]
	deleted mutationcache.Deletions
	// deletedOther are the deletions of other pods, and missed is when those were found to
	// be gone.
	deletedOther mutationcache.Deletions
	missed       missedPods
	// unplaced are the deletions of provisioning pods.
	unplaced mutationcache.Deletions
	ended    endedPods
}

// SetupWithManager registers the loop, which works at the given pace and needs the indexes
// of packages claimusers and rivals.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstance").
		For(&v1.VirtualMachineInstance{}).
		Watches(&corev1.Pod{}, r.podEvents()).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		// A DataVolume has the name of its claim.
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		WithOptions(pace).
		Complete(r)
}

// usersOfClaim are the VMIs that may have waited for a claim.
func (r *Reconciler) usersOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return claimusers.Requests(ctx, r.Client, claim, func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.NodeName == "" })
}

// Reconcile looks at one VMI and does what is next.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	observed, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var instance types.UID
	if observed.VMI != nil {
		instance = observed.VMI.UID
	}
	if err := r.sweep(ctx, req.NamespacedName, instance); err != nil || observed.VMI == nil {
		return ctrl.Result{}, err
	}
	plan, err := r.decide(ctx, &observed)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, observed, plan); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.After}, nil
}

// decide plans, and asks the API server for what the plan turns out to depend on.
func (r *Reconciler) decide(ctx context.Context, o *vmilifecycle.Observed) (vmilifecycle.Plan, error) {
	return settle.Plan(ctx, func() (vmilifecycle.Plan, vmilifecycle.Question) {
		plan := vmilifecycle.Decide(*o)
		return plan, plan.Needs
	}, func(ctx context.Context, question vmilifecycle.Question) error { return r.ask(ctx, question, o) })
}

// ask puts a question to the API server.
func (r *Reconciler) ask(ctx context.Context, question vmilifecycle.Question, o *vmilifecycle.Observed) error {
	switch question {
	case vmilifecycle.NeedPod:
		return r.askForPod(ctx, o)
	case vmilifecycle.NeedOther:
		return r.askForOther(ctx, o)
	case vmilifecycle.NeedOtherNode:
		return r.askForOtherNode(ctx, o)
	case vmilifecycle.NeedDisks:
		return r.confirmDisks(ctx, o)
	case vmilifecycle.NeedRivals:
		return r.askForRivals(ctx, o)
	case vmilifecycle.NeedVM:
		return r.askForVM(ctx, o)
	case vmilifecycle.NeedNode:
		return r.askForNode(ctx, o)
	case vmilifecycle.NeedWarning:
		return r.askForWarning(ctx, o)
	case vmilifecycle.NeedResources:
		return r.askForResources(ctx, o)
	}
	return fmt.Errorf("nobody can ask for %s", question)
}

// observe gathers what is known of a VMI; VMI is nil when it is gone.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (vmilifecycle.Observed, error) {
	o := vmilifecycle.Observed{Now: r.Now()}
	var vmi v1.VirtualMachineInstance
	if err := r.Client.Get(ctx, key, &vmi); err != nil {
		r.written.Forget(key)
		r.deleted.Forget(key)
		r.deletedOther.Forget(key)
		r.missed.forget(key)
		r.unplaced.Forget(key)
		r.ended.forget(key)
		return o, client.IgnoreNotFound(err)
	}
	o.VMI = r.written.Newer(&vmi)

	var err error
	if o.Pod, err = r.observePod(ctx, o.VMI, launcherpod.CurrentName(o.VMI)); err != nil {
		return o, err
	}
	if other := launcherpod.OtherName(o.VMI); other != "" {
		if o.Other, err = r.observePod(ctx, o.VMI, other); err != nil {
			return o, err
		}
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return o, err
	}
	o.GuestsStay = !settings.MigratesGuests
	return o, r.observeDisks(ctx, &o)
}

// observePod is one of the VMI's launcher pods as the cache shows it, or as it was when it
// went; nil when neither is known.
func (r *Reconciler) observePod(ctx context.Context, vmi *v1.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: name}, &pod)
	switch {
	case err == nil:
		return &pod, nil
	case apierrors.IsNotFound(err):
		return r.ended.of(vmi, name), nil
	}
	return nil, fmt.Errorf("reading the launcher pod %s of VMI %s/%s: %w", name, vmi.Namespace, vmi.Name, err)
}

// askForPod asks the API server for the launcher pod that the cache lacks.
func (r *Reconciler) askForPod(ctx context.Context, o *vmilifecycle.Observed) error {
	pod, err := r.storedPod(ctx, o.VMI, launcherpod.CurrentName(o.VMI))
	if err == nil {
		o.PodAsked, o.Pod = true, pod
	}
	return err
}

// askForOther asks it for the other launcher pod, and remembers since when that is gone.
func (r *Reconciler) askForOther(ctx context.Context, o *vmilifecycle.Observed) error {
	name := launcherpod.OtherName(o.VMI)
	pod, err := r.storedPod(ctx, o.VMI, name)
	if err != nil {
		return err
	}
	o.OtherAsked, o.Other = true, pod
	o.OtherMissed = r.missed.since(client.ObjectKeyFromObject(o.VMI), name, pod == nil || launcherpod.BondOf(pod, o.VMI) != launcherpod.Chosen, o.Now)
	return nil
}

func (r *Reconciler) storedPod(ctx context.Context, vmi *v1.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	found, err := exists(ctx, r.stored, types.NamespacedName{Namespace: vmi.Namespace, Name: name}, pod)
	if err != nil || !found {
		return nil, err
	}
	return pod, nil
}

// askForWarning asks the API server for the newest warning about the pod.
func (r *Reconciler) askForWarning(ctx context.Context, o *vmilifecycle.Observed) error {
	var err error
	if o.Warning, err = objectevents.NewestWarning(ctx, r.Reader, o.Pod); err != nil {
		return fmt.Errorf("looking what keeps the launcher pod: %w", err)
	}
	o.WarningAsked = true
	return nil
}

// apply does what is planned, in the plan's order.
func (r *Reconciler) apply(ctx context.Context, o vmilifecycle.Observed, plan vmilifecycle.Plan) error {
	if err := r.provision(ctx, o, plan); err != nil {
		return err
	}
	if plan.CreatePod {
		if err := r.createPod(ctx, o); err != nil {
			return r.reportFailedCreate(ctx, o.VMI, "the launcher pod", err)
		}
	}
	if err := r.describePods(ctx, o, plan); err != nil {
		return err
	}
	current, err := r.patch(ctx, o.VMI, plan.VMI)
	if err != nil || !current {
		return err
	}
	if plan.Resize {
		if err := r.resize(ctx, o, plan.VMI); err != nil {
			return err
		}
	}
	if plan.DeleteOther {
		if err := deletion.Once(ctx, r.Client, &r.deletedOther, o.VMI, o.Other, "the pod"); err != nil {
			return err
		}
	}
	if !plan.DeletePod {
		return nil
	}
	return deletion.Once(ctx, r.Client, &r.deleted, o.VMI, o.Pod, "the pod")
}

// describePods says on the pods where the guest is and which networks it has.
func (r *Reconciler) describePods(ctx context.Context, o vmilifecycle.Observed, plan vmilifecycle.Plan) error {
	if plan.OpenGate {
		if err := r.openGate(ctx, o.Other); err != nil {
			return err
		}
	}
	if plan.LabelNode {
		if err := r.labelNode(ctx, o.Pod); err != nil {
			return err
		}
	}
	if plan.Networks == nil {
		return nil
	}
	return r.annotateNetworks(ctx, o.Pod, *plan.Networks)
}

// openGate has the kubelet count the pod as ready in which the guest runs now. What network plugins read of the pod, to send
// the guest's traffic there, is said in the same write.
func (r *Reconciler) openGate(ctx context.Context, pod *corev1.Pod) error {
	open := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": pod.UID, "labels": map[string]string{v1.NodeNameLabel: pod.Spec.NodeName},
			"annotations": map[string]string{v1.MigrationTargetReadyTimestamp: r.Now().UTC().Format(time.RFC3339)},
		},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: launcherpod.GuestGate, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(r.Now()),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encoding the gate of the pod %s: %w", pod.Name, err)
	}
	err = r.Client.Status().Patch(ctx, open, client.RawPatch(types.StrategicMergePatchType, data))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("opening the gate of the pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// labelNode says on a pod which node its guest is on.
func (r *Reconciler) labelNode(ctx context.Context, pod *corev1.Pod) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{v1.NodeNameLabel: pod.Spec.NodeName}},
	})
	if err != nil {
		return fmt.Errorf("encoding the label of the pod %s: %w", pod.Name, err)
	}
	named := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, named, client.RawPatch(types.MergePatchType, data))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("labeling the pod %s/%s with its node: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// reportFailedCreate says on the VMI why something could not be created that it needs first. It gives the
// error back, which has the loop try again, but for the end of the namespace.
func (r *Reconciler) reportFailedCreate(ctx context.Context, vmi *v1.VirtualMachineInstance, what string, cause error) error {
	if apierrors.HasStatusCause(cause, corev1.NamespaceTerminatingCause) {
		// The VMI goes with its namespace, and wakes the loop then.
		return nil
	}
	if _, err := r.patch(ctx, vmi, vmilifecycle.CreateFailed(vmi, what, cause, r.Now())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "reporting what could not be created", "what", what)
	}
	return cause
}

func (r *Reconciler) createPod(ctx context.Context, o vmilifecycle.Observed) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	facts, err := r.facts(ctx, o.VMI, o.Claims)
	if err != nil {
		return err
	}
	pod, err := launcherpod.Render(o.VMI, settings, r.LauncherImage, facts)
	if err != nil {
		return fmt.Errorf("rendering the launcher pod of VMI %s: %w", o.VMI.Name, err)
	}
	if err := r.requireHotplugTopology(ctx, o.VMI, pod); err != nil {
		return err
	}
	need, err := launcherpod.Need(o.VMI, settings)
	if err != nil {
		return fmt.Errorf("reckoning what the launcher pod of VMI %s needs: %w", o.VMI.Name, err)
	}
	return r.make(ctx, o.VMI, pod, need)
}

// RenderTarget renders the pod that a VMI's guest migrates to.
func (r *Reconciler) RenderTarget(ctx context.Context, vmi *v1.VirtualMachineInstance, target launcherpod.Target) (*corev1.Pod, error) {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil, err
	}
	vmi = volumemigration.Target(vmi)
	claims, err := r.claims(ctx, vmi, r.cachedOrStored)
	if err != nil {
		return nil, err
	}
	facts, err := r.facts(ctx, vmi, claims)
	if err != nil {
		return nil, fmt.Errorf("rendering the target pod of VMI %s: %w", vmi.Name, err)
	}
	pod, err := launcherpod.RenderTarget(vmi, target, settings, r.LauncherImage, facts)
	if err != nil {
		return nil, fmt.Errorf("rendering the target pod of VMI %s: %w", vmi.Name, err)
	}
	return pod, r.requireHotplugTopology(ctx, vmi, pod)
}

// make creates the launcher pod, unless it is there already: an earlier creation
// of our own is as good, and what is to be done about a pod that has been tampered
// with is decided when it is seen. One that is none of ours may never be seen.
func (r *Reconciler) make(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod, need podlimits.Need) error {
	err := podcreation.Create(ctx, r.Client, r.Reader, pod, need)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := &corev1.Pod{}
	found, err := exists(ctx, r.stored, client.ObjectKeyFromObject(pod), existing)
	if err == nil && found && launcherpod.BondOf(existing, vmi) == launcherpod.Foreign {
		return fmt.Errorf("a pod %s exists that does not belong to VMI %s", pod.Name, vmi.Name)
	}
	return err
}

// blockClaims are the names of the claims that are block devices.
func blockClaims(claims []placement.Claim) map[string]bool {
	out := map[string]bool{}
	for i := range claims {
		if m := claims[i].Claim.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
			out[claims[i].Name] = true
		}
	}
	return out
}

// patch writes the difference, on condition that nobody wrote in between. It
// reports false when somebody did: what was planned is out of date, and the newer
// version wakes this loop again.
func (r *Reconciler) patch(ctx context.Context, from, to *v1.VirtualMachineInstance) (current bool, err error) {
	patch, err := difference(from, to)
	if err != nil || patch == nil {
		return err == nil, err
	}
	patched := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name}}
	err = r.Client.Patch(ctx, patched, patch)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patching VMI %s/%s: %w", from.Namespace, from.Name, err)
	}
	r.written.Wrote(patched)
	for _, e := range vmilifecycle.EventsOf(from, to) {
		r.recordEvents(from, nil, e)
	}
	return true, nil
}

func (r *Reconciler) recordEvents(vmi *v1.VirtualMachineInstance, pod runtime.Object, e vmilifecycle.Event) {
	r.Recorder.Eventf(vmi, pod, e.Type, e.Reason, e.Action, "%s", e.Message)
}
