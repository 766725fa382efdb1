// Package datavolume is the loop that creates and fills the claims of DataVolumes. Package datavolume of the rules
// decides.
//
// It owns a DataVolume's status, claim and workers, with their Services and Secrets, and DataSources' status, while
// Drydock serves DataVolumes (package cdi). It must not decide anything that depends on more than the API server's
// response.
package datavolume

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/objectevents"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Reconciler is the loop. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Reader from the API server.
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Settings func(context.Context) (clusterconfig.Settings, error)
	// Namespace is Drydock's own.
	ImporterImage string
	Namespace     string
	// DeniedNetworks are denied to imports beside those that always are, AllowedNetworks allowed despite either.
	DeniedNetworks, AllowedNetworks []string
	Progress                        func(context.Context, *corev1.Pod) (*transfer.Progress, error)
	Now                             func() time.Time

	written  mutationcache.Memory[*cdiv1.DataVolume]
	renewals renewals
	// deletedWorkers fill claims; deletedSources send clones.
	deletedWorkers, deletedSources mutationcache.Deletions
	// deletedRestored has the deletions of claims from which snapshots were copied.
	deletedRestored mutationcache.Deletions
}

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	worker := predicate.NewPredicateFuncs(func(pod client.Object) bool {
		return pod.GetLabels()[v1.AppLabel] == datavolume.WorkerAppLabel
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("datavolume").
		For(&cdiv1.DataVolume{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofTarget), builder.WithPredicates(worker)).
		// A claim may wait for a guest's pod to end.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofClaims), builder.WithPredicates(ended())).
		// Any DataVolume may wait for these.
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.unfinished)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.unfinished), builder.WithPredicates(cdi.Decisive())).
		WatchesMetadata(cdi.Definition(), handler.EnqueueRequestsFromMapFunc(r.unfinished), builder.WithPredicates(cdi.Decisive())).
		WithOptions(pace).
		Complete(r)
}

// ofClaim returns the DataVolume of a claim's name, whoever owns the claim, and the one that the claim names.
func (r *Reconciler) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return append(r.ofTarget(ctx, claim), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
}

// ofTarget returns the DataVolume that an object names. In another namespace its UID must match, too: users could name any.
func (r *Reconciler) ofTarget(ctx context.Context, object client.Object) []reconcile.Request {
	target, ok := datavolume.Target(object)
	if !ok || target.Namespace != object.GetNamespace() && !r.madeElsewhere(ctx, object) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: target}}
}

func (r *Reconciler) madeElsewhere(ctx context.Context, object client.Object) bool {
	target, uid, made := datavolume.MadeFor(object)
	if !made {
		return false
	}
	dv, err := versioned.Read[cdiv1.DataVolume](ctx, r.Client, "the DataVolume", target)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "reading the DataVolume that an object names", "object", client.ObjectKeyFromObject(object))
	}
	return dv != nil && dv.UID == uid
}

// A DataVolume has its claim's name.
func ofClaims(_ context.Context, object client.Object) []reconcile.Request {
	pod, is := object.(*corev1.Pod)
	if !is {
		return nil
	}
	var out []reconcile.Request
	for _, claim := range lock.Claims(pod) {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: claim}})
	}
	return out
}

func ended() predicate.Predicate {
	ofGuest := func(pod client.Object) bool { return hotplug.GuestOf(pod) != "" }
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return ofGuest(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, is := e.ObjectOld.(*corev1.Pod)
			after, too := e.ObjectNew.(*corev1.Pod)
			return is && too && ofGuest(after) && !podstatus.Terminal(before) && podstatus.Terminal(after)
		},
	}
}

func (r *Reconciler) unfinished(ctx context.Context, _ client.Object) []reconcile.Request {
	var list cdiv1.DataVolumeList
	if err := r.Client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the DataVolumes")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if phase := list.Items[i].Status.Phase; phase != cdiv1.Succeeded && phase != cdiv1.Failed {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// steps bounds the consecutive steps of one DataVolume, each of which acts. No path has as many.
const steps = 24

// Reconcile advances one DataVolume as far as it can.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	installed, err := cdi.Installed(ctx, r.Client, r.Reader)
	if err != nil || installed != "" {
		return ctrl.Result{}, err
	}
	var cached cdiv1.DataVolume
	if err := r.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		r.written.Forget(req.NamespacedName)
		r.deletedWorkers.Forget(req.NamespacedName)
		r.deletedSources.Forget(req.NamespacedName)
		r.deletedRestored.Forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	round := round{Reconciler: r, dv: r.written.Newer(&cached)}
	var after time.Duration
	rests, err := settle.Rounds(ctx, steps, func(ctx context.Context) (bool, error) {
		plan, err := round.step(ctx)
		after = plan.After
		return plan.Again && !round.outdated, err
	})
	if err == nil && !rests {
		err = fmt.Errorf("DataVolume %s does not come to rest in %d steps", req, steps)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// round keeps the objects that it created until the cache has them.
type round struct {
	*Reconciler
	dv             *cdiv1.DataVolume
	claim          *corev1.PersistentVolumeClaim
	worker, source *corev1.Pod
	// restored is the claim from which a snapshot is copied.
	restored *corev1.PersistentVolumeClaim
	// current means that the API server has confirmed dv.
	current bool
	// outdated means that another writer was faster, which wakes the loop.
	outdated bool
}

func (r *round) step(ctx context.Context) (datavolume.Plan, error) {
	observed, err := r.observe(ctx)
	if err != nil {
		return datavolume.Plan{}, err
	}
	if err := r.keepCertificates(ctx, observed); err != nil {
		return datavolume.Plan{}, err
	}
	plan, err := settle.Plan(ctx, func() (datavolume.Plan, datavolume.Question) {
		if r.outdated {
			return datavolume.Plan{}, ""
		}
		plan := datavolume.Decide(observed)
		return plan, plan.Needs
	}, func(ctx context.Context, question datavolume.Question) error { return r.ask(ctx, question, &observed) })
	if err != nil || r.outdated {
		return datavolume.Plan{}, err
	}
	return plan, r.apply(ctx, plan)
}

func (r *round) ask(ctx context.Context, question datavolume.Question, o *datavolume.Observed) (err error) {
	switch question {
	case datavolume.NeedDataVolume:
		var current bool
		if current, err = versioned.Current(ctx, r.Reader, "DataVolume", r.dv); err == nil {
			r.current, r.outdated = current, !current
		}
		o.Confirmed = r.current
	case datavolume.NeedWriters:
		namespace, _, name := datavolume.SourceOf(&o.DataVolume.Spec, r.dv.Namespace)
		o.Source.UsedBy, err = r.writer(ctx, client.ObjectKey{Namespace: namespace, Name: name})
		o.Source.WritersAsked = true
	case datavolume.NeedUsers:
		o.UsedBy, err = claimusers.User(ctx, r.Reader, client.ObjectKeyFromObject(r.dv), true)
		o.UsersAsked = err == nil
	case datavolume.NeedWarning:
		o.Warning, err = objectevents.NewestWarning(ctx, r.Reader, datavolume.Stuck(*o))
		o.WarningAsked = true
	case datavolume.NeedProgress:
		o.Progress, o.Unreachable = r.poll(ctx, o.Worker)
	default:
		err = fmt.Errorf("nobody can ask for %s", question)
	}
	return err
}

func (r *round) keepCertificates(ctx context.Context, o datavolume.Observed) error {
	if datavolume.Ended(r.dv) || r.dv.DeletionTimestamp != nil {
		return nil
	}
	if o.Worker != nil && o.Worker.Name == datavolume.UploadWorkerName(r.dv) {
		if err := r.renewCertificate(ctx, datavolume.UploadCertificate(r.dv), o.Worker); err != nil {
			return err
		}
	}
	if o.SourcePod == nil {
		return nil
	}
	return r.renewCertificate(ctx, datavolume.SourceCertificate(r.dv, o.SourcePod.Namespace), o.SourcePod)
}

// A worker that does not answer still works; unreachable means no connection.
func (r *round) poll(ctx context.Context, pod *corev1.Pod) (progress *transfer.Progress, unreachable bool) {
	progress, err := r.Progress(ctx, pod)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("asking a worker for its progress", "pod", pod.Name, "error", err.Error())
		return &transfer.Progress{}, noConnection(err)
	}
	return progress, false
}
