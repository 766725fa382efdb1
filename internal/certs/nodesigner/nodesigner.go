// Package nodesigner is virt-api's side of virt-handlers' certificates: the signer drydock.dev/virt-handler of the
// cluster's CertificateSigningRequests. nodecert.Judge decides which request is approved, signed or refused. Only this
// package reads the authority's key, and it must output nothing but certificates (decision 234).
package nodesigner

import (
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// Cached restricts the manager's cache to requests for this signer.
func Cached() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", nodecert.SignerName)}
}

// Signer signs requests. Several may run at once: of two writes to a request, the API server refuses one.
type Signer struct {
	client client.Client
	now    func() time.Time

	mu   sync.Mutex
	pace *pace // mu guards it.
}

// Add adds the signer to the manager.
func Add(mgr manager.Manager) error {
	s := &Signer{client: mgr.GetClient(), now: time.Now, pace: newPace()}
	err := builder.ControllerManagedBy(mgr).
		Named("virt-handler-certificates").
		For(&certificatesv1.CertificateSigningRequest{}).
		// Requests wait until the authority is published.
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(s.waiting), builder.WithPredicates(predicate.NewPredicateFuncs(
			func(o client.Object) bool { return o.GetName() == certs.TrustConfigMap }))).
		Complete(s)
	if err != nil {
		return fmt.Errorf("adding the signer of virt-handlers' certificates: %w", err)
	}
	return nil
}

func (s *Signer) waiting(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "listing the requests for certificates")
		return nil
	}
	var waiting []reconcile.Request
	for i := range list.Items {
		if nodecert.Judge(&list.Items[i]).Act != nodecert.Ignore {
			waiting = append(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return waiting
}

// Reconcile decides one request and writes the result.
func (s *Signer) Reconcile(ctx context.Context, name reconcile.Request) (reconcile.Result, error) {
	request := &certificatesv1.CertificateSigningRequest{}
	if err := s.client.Get(ctx, name.NamespacedName, request); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	verdict := nodecert.Judge(request)
	if verdict.Act == nodecert.Ignore {
		return reconcile.Result{}, nil
	}
	authority, err := s.authority(ctx)
	if authority == nil || err != nil {
		return reconcile.Result{}, err
	}
	if wait := s.wait(nodecert.Requester(request), request.UID); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	err = s.apply(ctx, request.DeepCopy(), verdict, authority)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Another virt-api was faster, or the request was deleted.
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// authority returns nil while it is unpublished: peers would refuse its certificates.
func (s *Signer) authority(ctx context.Context) (*nodecert.Authority, error) {
	secret, trusted := &corev1.Secret{}, &corev1.ConfigMap{}
	for name, object := range map[string]client.Object{certs.HandlerAuthoritySecret: secret, certs.TrustConfigMap: trusted} {
		key := types.NamespacedName{Namespace: clusterconfig.Namespace, Name: name}
		if err := s.client.Get(ctx, key, object); err != nil {
			return nil, fmt.Errorf("reading the authority of virt-handlers: %w", err)
		}
	}
	if len(secret.Data[certs.AuthorityEntry]) == 0 {
		return nil, nil
	}
	authority, err := nodecert.NewAuthority(secret.Data[certs.AuthorityEntry], secret.Data[certs.AuthorityKeyEntry])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s: %w", certs.HandlerAuthoritySecret, err)
	}
	if !authority.PublishedIn([]byte(trusted.Data[certs.HandlerTrust()])) {
		return nil, nil
	}
	return authority, nil
}

// apply writes the verdict, and signs an approved request at once.
func (s *Signer) apply(ctx context.Context, request *certificatesv1.CertificateSigningRequest, v nodecert.Verdict, a *nodecert.Authority) error {
	switch v.Act {
	case nodecert.Approve, nodecert.Refuse:
		nodecert.Conclude(request, v, metav1.NewTime(s.now()))
		subresource := "approval"
		if v.Condition.Type == certificatesv1.CertificateFailed {
			subresource = "status"
		}
		if err := s.client.SubResource(subresource).Update(ctx, request); err != nil {
			return fmt.Errorf("writing %s of the CertificateSigningRequest %s: %w", v.Condition.Type, request.Name, err)
		}
		log.FromContext(ctx).Info("judged", "condition", v.Condition.Type, "message", v.Condition.Message)
		if v.Act == nodecert.Refuse {
			return nil
		}
	case nodecert.Ignore, nodecert.Sign:
	}
	certificate, err := a.Sign(v.Grant, s.now())
	if err != nil {
		return err
	}
	request.Status.Certificate = certificate
	if err := s.client.SubResource("status").Update(ctx, request); err != nil {
		return fmt.Errorf("writing the certificate of the CertificateSigningRequest %s: %w", request.Name, err)
	}
	return nil
}

func (s *Signer) wait(node string, request types.UID) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.wait(node, request, s.now())
}
