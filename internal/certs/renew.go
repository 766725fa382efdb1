package certs

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// lookAgain bounds the trust in a timer, which is late on a machine that was suspended.
const lookAgain = 12 * time.Hour

// renewer renews certificates before they expire, by the lifetimes in the KubeVirt object. The rotator handles missing,
// expired or damaged ones.
//
// A new authority cuts nobody off: peers that know only the old one accept the new certificate, whose chain has the new
// authority's certificate signed by the old one; and the old authority stays in the bundles until it expires.
type renewer struct {
	client   client.Client
	rotators []*rotator.CertRotator
	now      func() time.Time
	// lifetimes learn of each Secret.
	lifetimes *Lifetimes
}

func addRenewer(mgr manager.Manager, rotators []*rotator.CertRotator, lifetimes *Lifetimes) error {
	r := &renewer{client: mgr.GetClient(), rotators: rotators, now: time.Now, lifetimes: lifetimes}
	err := builder.ControllerManagedBy(mgr).
		Named("certificates").
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ours())).
		Watches(&v1.KubeVirt{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			var all []reconcile.Request
			for _, rotator := range rotators {
				all = append(all, reconcile.Request{NamespacedName: rotator.SecretKey})
			}
			return all
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the renewal of certificates: %w", err)
	}
	return nil
}

// Reconcile renews the content of one Secret, if that is due.
func (r *renewer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	i := slices.IndexFunc(r.rotators, func(of *rotator.CertRotator) bool { return of.SecretKey == request.NamespacedName })
	if i < 0 {
		return reconcile.Result{}, nil
	}
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, request.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	is, usable := issuanceOf(secret.Data, r.rotators[i].CertName, r.rotators[i].KeyName)
	if !usable {
		return reconcile.Result{}, nil
	}
	var all v1.KubeVirtList
	if err := r.client.List(ctx, &all); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the KubeVirt objects: %w", err)
	}
	// virt-controller reports invalid lifetimes in the object's status.
	want, _ := clusterconfig.CertificatesOf(clusterconfig.TheOne(all.Items, clusterconfig.Namespace))
	authority, certificate := dueTimes(is, want, r.now())
	r.lifetimes.saw(secret.Name, is, authority, certificate)
	what, next := due(is, want, r.now())
	if what == renewNothing {
		return reconcile.Result{RequeueAfter: min(max(next.Sub(r.now()), time.Second), lookAgain)}, nil
	}
	renewed := secret.DeepCopy()
	if err := renew(renewed, r.rotators[i], is, what, want, r.now()); err != nil {
		return reconcile.Result{}, err
	}
	err := r.client.Update(ctx, renewed)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Another virt-api was faster, and the watch reports its write.
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("renewing the certificates in Secret %s: %w", request.NamespacedName, err)
	}
	log.FromContext(ctx).Info("renewed", "authority", what == renewAuthority)
	return reconcile.Result{}, nil
}

func renew(secret *corev1.Secret, by *rotator.CertRotator, is issuance, what renewal, want clusterconfig.Certificates, now time.Time) error {
	failed := func(err error) error {
		return fmt.Errorf("making the certificates of Secret %s: %w", types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, err)
	}
	signer := &rotator.KeyPairArtifacts{Cert: is.authority, Key: is.authorityKey}
	var bridge []byte
	var err error
	if what == renewAuthority {
		if signer, err = by.CreateCACert(now.Add(-backdated), now.Add(want.Authority.Duration)); err != nil {
			return failed(err)
		}
		if bridge, err = vouch(signer.Cert, is); err != nil {
			return failed(err)
		}
		secret.Data[AuthorityEntry] = mergeAuthorities(signer.CertPEM, secret.Data[AuthorityEntry], now)
		secret.Data[AuthorityKeyEntry] = signer.KeyPEM
	}
	end := now.Add(want.Certificate.Duration)
	if end.After(signer.Cert.NotAfter) {
		end = signer.Cert.NotAfter
	}
	cert, key, err := by.CreateCertPEM(signer, now.Add(-backdated), end)
	if err != nil {
		return failed(err)
	}
	secret.Data[by.CertName] = append(cert, bridge...)
	secret.Data[by.KeyName] = key
	return nil
}

// vouch returns the new authority's certificate signed by the old one.
func vouch(authority *x509.Certificate, before issuance) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template := *authority
	template.SerialNumber, template.AuthorityKeyId = serial, before.authority.SubjectKeyId
	if template.NotAfter.After(before.authority.NotAfter) {
		template.NotAfter = before.authority.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, before.authority, authority.PublicKey, before.authorityKey)
	if err != nil {
		return nil, fmt.Errorf("signing the new authority by the one before: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
