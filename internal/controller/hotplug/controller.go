// Package hotplug is the loop that maintains the attachment pods of VMIs' hotplugged volumes, and virt-controller's
// part of these volumes' status. Package internal/rules/hotplug decides.
//
// It owns the attachment pods, their disruption budgets and their record on a VMI, and the controller's fields of a
// VMI's volume status (docs/architecture.md). It must not decide anything that depends on more than the API server's
// response.
package hotplug

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

const podIndex = "drydock.attachment-pods"

// DefaultMaxAttachmentPods is how many attachment pods a VMI keeps at rest, besides those whose claims allow only one pod.
// Each costs a few MiB on the node; with fewer, each unplugged volume would replace a pod of many volumes.
const DefaultMaxAttachmentPods = 4

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client            client.Client
	Reader            client.Reader
	Recorder          events.EventRecorder
	Settings          func(context.Context) (clusterconfig.Settings, error)
	LauncherImage     string
	MaxAttachmentPods int
	Now               func() time.Time

	written mutationcache.Memory[*v1.VirtualMachineInstance]
	memory  memory
}

// SetupWithManager needs the index of package claimusers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, pace controller.Options) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podIndex, func(o client.Object) []string {
		if o.GetLabels()[v1.AppLabel] != layout.AttachmentApp {
			return nil
		}
		return []string{o.GetAnnotations()[v1.DomainAnnotation]}
	})
	if err != nil {
		return fmt.Errorf("indexing attachment pods by VMI: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("hotplug").
		For(&v1.VirtualMachineInstance{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return concerned(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return concerned(e.ObjectOld) || concerned(e.ObjectNew) },
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.guestOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(instanceOf)).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(guestOfBudget), builder.WithPredicates(ruleChanged())).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		// A DataVolume has the name of its claim.
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		WithOptions(pace).
		Complete(r)
}

// Most VMIs have no hotplugged volumes and are not reconciled.
func concerned(o client.Object) bool {
	vmi, ok := o.(*v1.VirtualMachineInstance)
	return ok && (len(hotplug.VolumesOf(&vmi.Spec)) > 0 || len(hotplug.EntriesOf(vmi)) > 0 || vmi.Annotations[hotplug.RecordAnnotation] != "")
}

// A VMI that becomes concerned is enqueued by its own event.
func (r *Reconciler) guestOf(ctx context.Context, pod client.Object) []reconcile.Request {
	name := launcherpod.VMIOf(pod)
	if name == "" {
		return nil
	}
	key := types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}
	var vmi v1.VirtualMachineInstance
	// Most pods are of no concern: no copy.
	err := r.Client.Get(ctx, key, &vmi, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && !concerned(&vmi) {
		return nil
	}
	// The loop reports read errors.
	return []reconcile.Request{{NamespacedName: key}}
}

func instanceOf(_ context.Context, pod client.Object) []reconcile.Request {
	if pod.GetLabels()[v1.AppLabel] != layout.AttachmentApp {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: pod.GetNamespace(), Name: pod.GetAnnotations()[v1.DomainAnnotation],
	}}}
}

func (r *Reconciler) usersOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return claimusers.Requests(ctx, r.Client, claim, func(vmi *v1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(hotplug.VolumesOf(&vmi.Spec), func(v hotplug.Volume) bool { return v.Claim == claim.GetName() }) ||
			slices.ContainsFunc(hotplug.DestinationsOf(vmi), func(d hotplug.Destination) bool { return d.To.Claim == claim.GetName() })
	})
}

// mostRounds bounds how often one call writes the VMI and plans again. The writes themselves enqueue the rest.
const mostRounds = 6

// Reconcile handles one VMI.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var result ctrl.Result
	rests, err := settle.Rounds(ctx, mostRounds, func(ctx context.Context) (again bool, err error) {
		s, plan, err := r.plan(ctx, req.NamespacedName)
		switch {
		case err != nil:
			return false, err
		case s == nil:
			r.written.Forget(req.NamespacedName)
			r.memory.forget(req.NamespacedName)
			result, err = r.sweep(ctx, req.NamespacedName)
			return false, err
		case !plan.Changed && !s.knowsMoreOfClaims():
			result, err = r.act(ctx, s, plan)
			return false, err
		}
		return r.write(ctx, s, plan)
	})
	if err == nil && !rests {
		result.RequeueAfter = time.Second
	}
	return result, err
}

// plan decides from the caches, or from the API server. It returns no observation if the VMI does not exist.
func (r *Reconciler) plan(ctx context.Context, key types.NamespacedName) (*observation, hotplug.Plan, error) {
	s, err := r.observe(ctx, key, false)
	if err != nil {
		return nil, hotplug.Plan{}, err
	}
	maintained := false
	plan, err := settle.Plan(ctx, func() (hotplug.Plan, hotplug.Question) {
		if s == nil {
			return hotplug.Plan{}, ""
		}
		plan := hotplug.Decide(s.Observed)
		return plan, plan.Needs
	}, func(ctx context.Context, question hotplug.Question) (err error) {
		if question == hotplug.NeedPods {
			s, err = r.observe(ctx, key, true)
		}
		// The answer must be newer than the VMI, so a newer VMI repeats the question.
		if maintained = maintained || question == hotplug.NeedMaintainers; maintained && s != nil && err == nil {
			err = r.observeMaintainers(ctx, s)
		}
		return err
	})
	return s, plan, err
}
