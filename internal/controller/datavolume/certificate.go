package datavolume

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/workerpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Both outlive the pod, so that a replacement has them, too. See decision 107.
func (r *Reconciler) createSecretAndService(ctx context.Context, worker *datavolume.Worker, pod *corev1.Pod) error {
	if err := r.certify(ctx, *worker.Certificate, pod); err != nil {
		return err
	}
	if worker.Task.Kind != transfer.KindUpload {
		return nil
	}
	service := workerpod.Service(pod)
	err := r.Client.Create(ctx, service)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("creating the Service %s/%s: %w", service.Namespace, service.Name, err)
		}
		return err
	}
	// A Service that is about to be deleted with a former owner would leave this worker without one.
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

// certify creates a worker's certificate, or replaces it unread: virt-controller reads no Secrets in users' namespaces. The
// kubelet updates the pod's volume, and the worker reads the certificate for each connection.
func (r *Reconciler) certify(ctx context.Context, c datavolume.Certificate, pod *corev1.Pod) error {
	authority, err := r.authority(ctx)
	if err != nil {
		return err
	}
	sign := authority.Client
	if c.Server {
		sign = authority.Server
	}
	data, err := sign(c.Name, r.Now())
	if err != nil {
		return err
	}
	secret := workerpod.Secret(pod, c.Secret, data)
	err = r.Client.Create(ctx, secret.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		if err := r.Client.Delete(ctx, secret.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the Secret %s/%s to make it anew: %w", c.Namespace, c.Secret, err)
		}
		err = r.Client.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("creating the Secret %s/%s: %w", c.Namespace, c.Secret, err)
	}
	r.renewals.made(c, authority.Certificate(), r.Now())
	return nil
}

func (r *Reconciler) authority(ctx context.Context) (*workertls.Authority, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.Namespace, Name: certs.UploadSecret}
	if err := r.Reader.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("reading the authority of workers' certificates: %w", err)
	}
	return workertls.NewAuthority(secret.Data)
}

const (
	// lookEvery is how often the certificate of a worker is checked, which may wait for its upload for months.
	lookEvery = 10 * time.Minute
	// renewAfter is the age at which a certificate is renewed. It is valid for a month.
	renewAfter = 24 * time.Hour
)

// A certificate is renewed when it is old, of another authority, or unknown to this process.
func (r *Reconciler) renewCertificate(ctx context.Context, c datavolume.Certificate, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || !r.renewals.due(c, r.Now()) {
		return nil
	}
	authority, err := r.authority(ctx)
	if err != nil {
		return err
	}
	if r.renewals.good(c, authority.Certificate(), r.Now()) {
		return nil
	}
	return r.certify(ctx, c, pod)
}

// renewals remembers the certificates that this process created.
type renewals struct {
	mu   sync.Mutex
	list map[datavolume.Certificate]renewal
}

// renewal has when a certificate was created, when it was last checked, and its authority.
type renewal struct {
	at, looked time.Time
	authority  string
}

func (l *renewals) made(c datavolume.Certificate, authority []byte, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = map[datavolume.Certificate]renewal{}
	}
	for other, last := range l.list {
		if now.Sub(last.looked) > renewAfter {
			delete(l.list, other) // its worker is gone
		}
	}
	l.list[c] = renewal{at: now, looked: now, authority: string(authority)}
}

func (l *renewals) due(c datavolume.Certificate, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.list[c]
	return !known || now.Sub(last.looked) >= lookEvery
}

func (l *renewals) good(c datavolume.Certificate, authority []byte, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.list[c]
	if !known || last.authority != string(authority) || now.Sub(last.at) >= renewAfter {
		return false
	}
	last.looked = now
	l.list[c] = last
	return true
}
