package datavolume

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/settle"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/pod/workerpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// UploadClaims is the loop of claims that take an upload without a DataVolume, or have ceased to.
type UploadClaims struct {
	*Reconciler

	written mutationcache.Memory[*corev1.PersistentVolumeClaim]
	deleted mutationcache.Deletions
	inUse   waits
}

// waits has since when claims wait for their users' end.
type waits struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// note returns how long the claim has waited.
func (w *waits) note(claim types.NamespacedName, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, known := w.since[claim]
	if !known {
		if w.since == nil {
			w.since = map[types.NamespacedName]time.Time{}
		}
		since, w.since[claim] = now, now
	}
	return now.Sub(since)
}

func (w *waits) forget(claim types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, claim)
}

// SetupWithManager registers the loop.
func (u *UploadClaims) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("uploadclaim").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(takesUpload())).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofClaims), builder.WithPredicates(ended())).
		WithOptions(pace).
		Complete(u)
}

// takesUpload selects claims that take an upload, or did. If a claim shows neither, its worker wakes the loop.
func takesUpload() predicate.Predicate {
	concerns := func(claim client.Object) bool { return datavolume.TakesUpload(claim) || datavolume.TookUpload(claim) }
	passes := predicate.NewPredicateFuncs(concerns)
	passes.UpdateFunc = func(e event.UpdateEvent) bool { return concerns(e.ObjectOld) || concerns(e.ObjectNew) }
	return passes
}

// Reconcile advances one claim as far as it can.
func (u *UploadClaims) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	installed, err := cdi.Installed(ctx, u.Client, u.Reader)
	if err != nil || installed != "" {
		return ctrl.Result{}, err
	}
	var cached corev1.PersistentVolumeClaim
	if err := u.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		u.written.Forget(req.NamespacedName)
		u.deleted.Forget(req.NamespacedName)
		u.inUse.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	o := datavolume.ObservedUpload{Claim: u.written.Newer(&cached)}
	if !datavolume.TakesUpload(o.Claim) {
		u.inUse.forget(req.NamespacedName)
	}
	if err := u.observe(ctx, &o); err != nil {
		return ctrl.Result{}, err
	}
	outdated := false
	plan, err := settle.Plan(ctx, func() (datavolume.UploadPlan, datavolume.Question) {
		if outdated {
			return datavolume.UploadPlan{}, ""
		}
		plan := datavolume.DecideUpload(o)
		return plan, plan.Needs
	}, func(ctx context.Context, question datavolume.Question) (err error) {
		if question == datavolume.NeedUsers {
			o.UsedBy, err = claimusers.User(ctx, u.Reader, req.NamespacedName, false)
			o.UsersAsked = err == nil
			if o.UsedBy == "" {
				u.inUse.forget(req.NamespacedName)
			} else {
				o.Waited = u.inUse.note(req.NamespacedName, u.Now())
			}
			return err
		}
		o.Confirmed, err = versioned.Current(ctx, u.Reader, "the claim", o.Claim)
		outdated = !o.Confirmed
		return err
	})
	if err != nil || outdated {
		// A newer version wakes the loop.
		return ctrl.Result{}, err
	}
	if o.Worker == nil || plan.DeleteWorker {
		return ctrl.Result{RequeueAfter: plan.After}, u.apply(ctx, o, plan)
	}
	if err := u.renewCertificate(ctx, datavolume.UploadCertificate(o.Claim), o.Worker); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: lookEvery}, u.apply(ctx, o, plan)
}

func (u *UploadClaims) observe(ctx context.Context, o *datavolume.ObservedUpload) error {
	var classes storagev1.StorageClassList
	if err := u.Client.List(ctx, &classes); err != nil {
		return fmt.Errorf("listing the storage classes: %w", err)
	}
	o.Class = datavolume.Class(classes.Items, o.Claim.Spec.StorageClassName)
	pod, err := u.pod(ctx, client.ObjectKey{Namespace: o.Claim.Namespace, Name: datavolume.UploadWorkerName(o.Claim)})
	if err != nil {
		return err
	}
	if pod != nil && metav1.IsControlledBy(pod, o.Claim) {
		o.Worker = pod
	}
	o.Config, err = u.config(ctx)
	return err
}

func (u *UploadClaims) apply(ctx context.Context, o datavolume.ObservedUpload, plan datavolume.UploadPlan) error {
	if plan.CreateWorker != nil {
		if err := u.createWorker(ctx, plan.CreateWorker); err != nil {
			return err
		}
	}
	wrote, err := u.annotate(ctx, o.Claim, plan)
	if err != nil || !wrote || !plan.DeleteWorker {
		return err
	}
	// The pod is deleted last: its existence shows the next round that Service and Secret are to be deleted.
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: o.Claim.Namespace, Name: o.Worker.Name}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Claim.Namespace, Name: datavolume.SecretName(o.Worker.Name, o.Claim.UID)}}
	for _, object := range []client.Object{service, secret} {
		if err := u.delete(ctx, object); err != nil {
			return err
		}
	}
	return deletion.Once(ctx, u.Client, &u.deleted, o.Claim, o.Worker, "the worker pod")
}

func (u *UploadClaims) createWorker(ctx context.Context, worker *datavolume.Worker) error {
	settings, err := u.settings(ctx)
	if err != nil {
		return err
	}
	pod, err := workerpod.ClaimPod(worker, settings)
	if err != nil {
		return err
	}
	if err := u.createSecretAndService(ctx, worker, pod); err != nil {
		return err
	}
	if err := u.Client.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the worker pod %s/%s: %w", worker.Namespace, worker.Name, err)
	}
	return nil
}

// annotate reports false after a conflict.
func (u *UploadClaims) annotate(ctx context.Context, claim *corev1.PersistentVolumeClaim, plan datavolume.UploadPlan) (bool, error) {
	to := claim.DeepCopy()
	maps.Copy(to.Annotations, plan.Annotations)
	for _, name := range plan.Forget {
		delete(to.Annotations, name)
	}
	if maps.Equal(to.Annotations, claim.Annotations) {
		return true, nil
	}
	written, err := versioned.Write(ctx, u.Client, "annotating the claim", claim, to)
	if err != nil || written == nil {
		return false, err
	}
	u.written.Wrote(written)
	return true, nil
}
