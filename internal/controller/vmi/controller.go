// Package vmi is the loop that starts VirtualMachineInstances on nodes and stops them. Package vmicontroller decides.
//
// It owns the launcher pods and the controller's fields of a VMI (docs/architecture.md). It must not decide anything
// that depends on more than the API server's response.
package vmi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client        client.Client
	Reader        client.Reader
	Recorder      events.EventRecorder
	Settings      func(context.Context) (clusterconfig.Settings, error)
	LauncherImage string
	Now           func() time.Time

	written mutationcache.Memory[*v1.VirtualMachineInstance]
	deleted mutationcache.Deletions
	// deletedOther has the deletions of other launcher pods, missed when they were found to be gone.
	deletedOther mutationcache.Deletions
	missed       missedPods
	// unplaced has the deletions of provisioning pods.
	unplaced mutationcache.Deletions
	ended    endedPods
}

// SetupWithManager needs the indexes of packages claimusers and rivals.
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

func (r *Reconciler) usersOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return claimusers.Requests(ctx, r.Client, claim, func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.NodeName == "" })
}

// Reconcile handles one VMI.
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
	plan, err := settle.Plan(ctx, func() (vmicontroller.Plan, vmicontroller.Question) {
		plan := vmicontroller.Decide(observed)
		return plan, plan.Needs
	}, func(ctx context.Context, question vmicontroller.Question) error {
		return r.ask(ctx, question, &observed)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, observed, plan); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.After}, nil
}

func (r *Reconciler) ask(ctx context.Context, question vmicontroller.Question, o *vmicontroller.Observed) (err error) {
	switch question {
	case vmicontroller.NeedPod:
		// Perhaps only the cache lacks it.
		o.Pod, err = r.storedPod(ctx, o.VMI, launcherpod.CurrentName(o.VMI))
		o.PodAsked = err == nil
	case vmicontroller.NeedOther:
		name := launcherpod.OtherName(o.VMI)
		if o.Other, err = r.storedPod(ctx, o.VMI, name); err != nil {
			return err
		}
		gone := o.Other == nil || launcherpod.BondOf(o.Other, o.VMI) != launcherpod.Chosen
		o.OtherAsked, o.OtherMissed = true, r.missed.since(client.ObjectKeyFromObject(o.VMI), name, gone, o.Now)
	case vmicontroller.NeedOtherNode:
		o.OtherNode, err = r.storedNode(ctx, launcherpod.OtherNode(o.VMI))
		o.OtherNodeAsked = err == nil
	case vmicontroller.NeedDisks:
		o.Claims, o.Topologies, err = r.Places(ctx, o.VMI, launcherpod.StartClaims(o.VMI))
		o.ClaimsConfirmed = err == nil
	case vmicontroller.NeedRivals:
		err = r.askForRivals(ctx, o)
	case vmicontroller.NeedVM:
		o.VM, err = versioned.Read[v1.VirtualMachine](ctx, r.Reader, "VM", client.ObjectKeyFromObject(o.VMI))
		o.VMAsked = err == nil
	case vmicontroller.NeedNode:
		o.Node, err = r.storedNode(ctx, o.VMI.Status.NodeName)
		o.NodeAsked = err == nil
	case vmicontroller.NeedWarning:
		if o.Warning, err = objectevents.NewestWarning(ctx, r.Reader, o.Pod); err != nil {
			return fmt.Errorf("looking what keeps the launcher pod: %w", err)
		}
		o.WarningAsked = true
	case vmicontroller.NeedResources:
		err = r.askForResources(ctx, o)
	default:
		err = fmt.Errorf("nobody can ask for %s", question)
	}
	return err
}

// VMI is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (vmicontroller.Observed, error) {
	o := vmicontroller.Observed{Now: r.Now()}
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

// observePod returns a launcher pod of the VMI from the cache, or its last state if it had ended, else nil.
func (r *Reconciler) observePod(ctx context.Context, vmi *v1.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	pod, err := versioned.Read[corev1.Pod](ctx, r.Client, "the launcher pod", types.NamespacedName{Namespace: vmi.Namespace, Name: name})
	if err != nil || pod != nil {
		return pod, err
	}
	return r.ended.of(vmi, name), nil
}

func (r *Reconciler) storedPod(ctx context.Context, vmi *v1.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	return versioned.Read[corev1.Pod](ctx, r.Reader, "the launcher pod", types.NamespacedName{Namespace: vmi.Namespace, Name: name})
}

func (r *Reconciler) apply(ctx context.Context, o vmicontroller.Observed, plan vmicontroller.Plan) error {
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

func (r *Reconciler) describePods(ctx context.Context, o vmicontroller.Observed, plan vmicontroller.Plan) error {
	if plan.OpenGate {
		if err := r.openGate(ctx, o.Other); err != nil {
			return err
		}
	}
	if plan.LabelNode {
		labels := map[string]any{v1.NodeNameLabel: o.Pod.Spec.NodeName}
		if err := r.patchMetadata(ctx, o.Pod, "labeling with its node", "labels", labels); err != nil {
			return err
		}
	}
	if plan.MarkEviction != nil {
		var mark any // null removes the annotation, which tells the descheduler that an eviction is in progress
		if *plan.MarkEviction {
			mark = "true"
		}
		annotations := map[string]any{launcherpod.EvictionInProgressAnnotation: mark}
		if err := r.patchMetadata(ctx, o.Pod, "marking as being evicted", "annotations", annotations); err != nil {
			return err
		}
	}
	if plan.Networks == nil {
		return nil
	}
	return r.annotateNetworks(ctx, o.Pod, *plan.Networks)
}

// openGate makes the pod in which the guest now runs ready for the kubelet, and lets network plugins redirect its
// traffic.
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
	_, err = versioned.Outcome("opening the gate of the pod", open, r.Client.Status().Patch(ctx, open, client.RawPatch(types.StrategicMergePatchType, data)))
	return err
}

// A pod that is gone or was replaced stays as it is.
func (r *Reconciler) patchMetadata(ctx context.Context, pod *corev1.Pod, action, field string, entries map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, field: entries}})
	if err != nil {
		return fmt.Errorf("encoding the %s of the pod %s: %w", field, pod.Name, err)
	}
	named := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	_, err = versioned.Outcome(action+" the pod", named, r.Client.Patch(ctx, named, client.RawPatch(types.MergePatchType, data)))
	return err
}

// reportFailedCreate writes a failure to the VMI's status and returns it for a retry, unless the namespace is
// terminating.
func (r *Reconciler) reportFailedCreate(ctx context.Context, vmi *v1.VirtualMachineInstance, what string, cause error) error {
	if apierrors.HasStatusCause(cause, corev1.NamespaceTerminatingCause) {
		// The VMI is deleted with its namespace, which wakes the loop.
		return nil
	}
	if _, err := r.patch(ctx, vmi, vmicontroller.CreateFailed(vmi, what, cause, r.Now())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "reporting what could not be created", "what", what)
	}
	return cause
}

func (r *Reconciler) createPod(ctx context.Context, o vmicontroller.Observed) error {
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
	err = podcreation.Create(ctx, r.Client, r.Reader, pod, need)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// An earlier creation of this loop is as good, and a pod that was tampered with is judged when it is observed. A
	// foreign pod may never be observed.
	existing, err := versioned.Read[corev1.Pod](ctx, r.Reader, "the launcher pod", client.ObjectKeyFromObject(pod))
	if existing != nil && launcherpod.BondOf(existing, o.VMI) == launcherpod.Foreign {
		return fmt.Errorf("a pod %s exists that does not belong to VMI %s", pod.Name, o.VMI.Name)
	}
	return err
}

// RenderTarget renders a migration's target pod.
func (r *Reconciler) RenderTarget(ctx context.Context, vmi *v1.VirtualMachineInstance, target launcherpod.Target) (*corev1.Pod, error) {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil, err
	}
	vmi = volumemigration.Target(vmi)
	claims, err := r.claims(ctx, vmi)
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

// After a conflict patch reports false: the plan is out of date, and the newer version wakes this loop.
func (r *Reconciler) patch(ctx context.Context, from, to *v1.VirtualMachineInstance) (current bool, err error) {
	patch, err := difference(from, to)
	if err != nil || patch == nil {
		return err == nil, err
	}
	patched := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name}}
	wrote, err := versioned.Outcome("patching VMI", patched, r.Client.Patch(ctx, patched, patch))
	if err != nil || !wrote {
		return false, err
	}
	r.written.Wrote(patched)
	for _, e := range vmicontroller.EventsOf(from, to) {
		r.Recorder.Eventf(from, nil, e.Type, e.Reason, e.Action, "%s", e.Message)
	}
	return true, nil
}
