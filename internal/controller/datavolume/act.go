package datavolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/mutationcache"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/pod/workerpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

func (r *round) apply(ctx context.Context, plan datavolume.Plan) error {
	if plan.AddFinalizer {
		return r.patchFinalizers(ctx, append(slices.Clone(r.dv.Finalizers), datavolume.Finalizer))
	}
	if err := r.make(ctx, plan); err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			// The DataVolume is deleted with its namespace, which wakes the loop.
			r.outdated = true
			return nil
		}
		if apierrors.IsForbidden(err) {
			return errors.Join(err, r.patchStatus(ctx, datavolume.Refused(r.dv, r.claim, err.Error(), r.Now())))
		}
		return err
	}
	if err := r.patchStatus(ctx, plan); err != nil || r.outdated {
		return err
	}
	if len(plan.AnnotateClaim) > 0 {
		// No other loop writes these annotations, so concurrent writes don't matter.
		to := r.claim.DeepCopy()
		for name, value := range plan.AnnotateClaim {
			metav1.SetMetaDataAnnotation(&to.ObjectMeta, name, value)
		}
		if err := r.Client.Patch(ctx, to, client.MergeFrom(r.claim)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotating the claim %s/%s: %w", to.Namespace, to.Name, err)
		}
		r.claim = to
	}
	return r.remove(ctx, plan)
}

func (r *round) make(ctx context.Context, plan datavolume.Plan) error {
	if plan.CreateClaim != nil {
		if err := r.createOrGet(ctx, plan.CreateClaim); err != nil {
			return err
		}
		r.claim = plan.CreateClaim
	}
	if plan.CreateRestored != nil {
		if err := r.createOrGet(ctx, plan.CreateRestored); err != nil {
			return err
		}
		r.restored = plan.CreateRestored
	}
	if plan.AdoptClaim {
		to := r.claim.DeepCopy()
		to.OwnerReferences = append(to.OwnerReferences, *metav1.NewControllerRef(r.dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")))
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, datavolume.AnnPopulatedFor, r.dv.Name)
		written, err := versioned.Write(ctx, r.Client, "adopting the claim", r.claim, to)
		if err != nil {
			return err
		}
		if written == nil {
			r.outdated = true
		} else {
			r.claim = written
		}
	}
	if plan.CreateWorker != nil {
		pod, err := r.createPod(ctx, plan.CreateWorker)
		if err != nil {
			return err
		}
		r.worker = pod
	}
	if plan.CreateSourcePod != nil {
		pod, err := r.createPod(ctx, plan.CreateSourcePod)
		if err != nil {
			return err
		}
		r.source = pod
	}
	return nil
}

func (r *round) createOrGet(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := r.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		err = r.Reader.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	}
	if err != nil {
		return fmt.Errorf("creating the claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// createPod creates a worker, after the Secret that it mounts and the Service that leads to it.
func (r *round) createPod(ctx context.Context, worker *datavolume.Worker) (*corev1.Pod, error) {
	settings, err := r.settings(ctx)
	if err != nil {
		return nil, err
	}
	pod, err := workerpod.Pod(worker, r.dv, settings)
	if err != nil {
		return nil, err
	}
	if worker.Certificate != nil {
		if err := r.createSecretAndService(ctx, worker, pod); err != nil {
			return nil, err
		}
	}
	err = r.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = r.Reader.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && !datavolume.IsWorkerOf(r.dv, pod) {
			err = fmt.Errorf("a pod of that name exists and is not this DataVolume's; delete it")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating the worker pod %s/%s: %w", worker.Namespace, worker.Name, err)
	}
	return pod, nil
}

func (r *Reconciler) settings(ctx context.Context) (workerpod.Settings, error) {
	cluster, err := r.Settings(ctx)
	if err != nil {
		return workerpod.Settings{}, err
	}
	config, err := r.config(ctx)
	return workerpod.Settings{Image: r.ImporterImage, PullPolicy: cluster.ImagePullPolicy, Config: config, LogFormat: cluster.LogFormat}, err
}

// patchStatus fails if somebody wrote in between.
func (r *round) patchStatus(ctx context.Context, plan datavolume.Plan) error {
	if equality.Semantic.DeepEqual(r.dv.Status, plan.Status) {
		return nil
	}
	to := r.dv.DeepCopy()
	to.Status = plan.Status
	written, err := versioned.WriteStatus(ctx, r.Client, "patching the status of DataVolume", r.dv, to)
	if err != nil {
		return err
	}
	if r.remember(written); r.outdated {
		return nil
	}
	if e := plan.Event; e != nil {
		r.Recorder.Eventf(written, nil, e.Type, e.Reason, "FillClaim", "%s", e.Message)
	}
	return nil
}

func (r *round) patchFinalizers(ctx context.Context, finalizers []string) error {
	to := r.dv.DeepCopy()
	to.Finalizers = finalizers
	written, err := versioned.Write(ctx, r.Client, "patching DataVolume", r.dv, to)
	if err == nil {
		r.remember(written)
	}
	return err
}

// written is nil if another writer was faster.
func (r *round) remember(written *cdiv1.DataVolume) {
	if written == nil {
		r.outdated = true
		return
	}
	r.written.Wrote(written)
	r.dv, r.current = written, true
}

func (r *round) remove(ctx context.Context, plan datavolume.Plan) error {
	if plan.DeleteWorker && datavolume.Ended(r.dv) {
		if err := r.deleteSecretAndService(ctx); err != nil {
			return err
		}
	}
	if plan.DeleteWorker {
		if err := r.deletePod(ctx, &r.deletedWorkers, r.dv.Namespace, datavolume.WorkerName(r.dv)); err != nil {
			return err
		}
		r.worker = nil
	}
	namespace, _, _ := datavolume.SourceOf(&r.dv.Spec, r.dv.Namespace)
	sourceSecret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: datavolume.SourcePodName(r.dv)}}
	if plan.DeleteSourcePod || plan.RemoveFinalizer {
		if err := r.delete(ctx, sourceSecret); err != nil {
			return err
		}
	}
	if plan.DeleteSourcePod {
		if err := r.deletePod(ctx, &r.deletedSources, namespace, datavolume.SourcePodName(r.dv)); err != nil {
			return err
		}
		r.source = nil
	}
	if plan.DeleteRestored {
		if err := r.deleteRestored(ctx); err != nil {
			return err
		}
	}
	if !plan.RemoveFinalizer {
		return nil
	}
	return r.patchFinalizers(ctx, slices.DeleteFunc(slices.Clone(r.dv.Finalizers), func(f string) bool { return f == datavolume.Finalizer }))
}

// The claim exists until no pod uses it.
func (r *round) deleteRestored(ctx context.Context) error {
	key := datavolume.RestoredKey(r.dv)
	claim, err := r.restoredClaim(ctx, key)
	if err != nil || claim == nil {
		return err
	}
	r.restored = nil
	return deletion.Once(ctx, r.Client, &r.deletedRestored, r.dv, claim, "the claim that a snapshot was copied from,")
}

// The pod is deleted last: while it exists, the next round deletes Service and Secret.
func (r *round) deleteSecretAndService(ctx context.Context) error {
	worker := datavolume.WorkerName(r.dv)
	if worker != datavolume.UploadWorkerName(r.dv) {
		return nil
	}
	meta := metav1.ObjectMeta{Namespace: r.dv.Namespace, Name: worker}
	if err := r.delete(ctx, &corev1.Service{ObjectMeta: meta}); err != nil {
		return err
	}
	meta.Name = datavolume.SecretName(worker, r.dv.UID)
	return r.delete(ctx, &corev1.Secret{ObjectMeta: meta})
}

// delete deletes a Secret or Service of a worker, or leaves another object that somebody has put in its place.
func (r *Reconciler) delete(ctx context.Context, object client.Object) error {
	err := r.Client.Delete(ctx, object)
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	// The policy refuses the deletion of an object without the labels of workers' objects. virt-controller can't read
	// Secrets.
	notOurs := (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(err.Error(), "'"+secretPolicy+"'")
	if notOurs {
		ctrl.LoggerFrom(ctx).Info("leaving an object that has the name of a worker's and is not Drydock's",
			"object", client.ObjectKeyFromObject(object), "reason", err.Error())
		return nil
	}
	return fmt.Errorf("deleting %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
}

// secretPolicy is in config/rbac/controller-policy.yaml.
const secretPolicy = "virt-controller-secrets"

func (r *round) deletePod(ctx context.Context, asked *mutationcache.Deletions, namespace, name string) error {
	pod, err := r.pod(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil || pod == nil || pod.DeletionTimestamp != nil {
		return err
	}
	return deletion.Once(ctx, r.Client, asked, r.dv, pod, "the worker pod")
}
