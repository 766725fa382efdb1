package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/datavolume"
	"drydock.dev/drydock/internal/transfer"
	"drydock.dev/drydock/internal/workerpod"
)

// equip makes the certificate of a worker that serves or calls, and the Service
// of one that serves. Both outlast the pod, so that what replaces a lost one has
// them, too.
func (r *Reconciler) equip(ctx context.Context, worker *datavolume.Worker, pod *corev1.Pod) error {
	data, err := r.certificate(ctx, worker)
	if err != nil {
		return err
	}
	err = r.Client.Create(ctx, workerpod.Secret(pod, worker.Secret, data))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Secret %s/%s: %w", worker.Namespace, worker.Secret, err)
	}
	if worker.Task.Kind != transfer.KindUpload {
		return nil
	}
	service := workerpod.Service(pod)
	err = r.Client.Create(ctx, service)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("creating the Service %s/%s: %w", service.Namespace, service.Name, err)
		}
		return err
	}
	// One that is about to go with a former owner would leave this one without.
	var existing corev1.Service
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(service), &existing); err != nil {
		return fmt.Errorf("reading the Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	owner, ours := metav1.GetControllerOf(&existing), metav1.GetControllerOf(service)
	if owner == nil || owner.UID != ours.UID {
		return fmt.Errorf("a Service %s/%s exists that is not of this upload", service.Namespace, service.Name)
	}
	return nil
}

func (r *Reconciler) certificate(ctx context.Context, worker *datavolume.Worker) (map[string][]byte, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.Namespace, Name: certs.UploadSecret}
	if err := r.Reader.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("reading the authority of workers' certificates: %w", err)
	}
	authority, err := workertls.NewAuthority(secret.Data)
	if err != nil {
		return nil, err
	}
	if worker.Task.Kind == transfer.KindUpload {
		return authority.Server(worker.Certificate, r.Now())
	}
	return authority.Client(worker.Certificate, r.Now())
}
