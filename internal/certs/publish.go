package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// AuthorityEntry is the entry of a rotated Secret with its authority's certificate, followed by those of earlier
// authorities that are still trusted.
const AuthorityEntry = "ca.crt"

// AuthorityKeyEntry is the entry with the authority's key.
const AuthorityKeyEntry = "ca.key"

// keptAuthorities bounds the trusted authorities of one Secret: the newest and those of certificates that may still be
// in use.
const keptAuthorities = 3

// publisher copies the authorities' certificates into the ConfigMap kubevirt-ca. A replaced one stays trusted until it
// expires, so that holders of old certificates are not cut off.
type publisher struct {
	client client.Client
}

func ours() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		switch o.GetName() {
		case APISecret, HandlerAuthoritySecret, HandlerClientSecret, UploadSecret, MetricsSecret:
			return true
		}
		return false
	})
}

func addPublisher(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).
		Named("trust").
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ours())).
		Complete(&publisher{client: mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("adding the publisher of authorities: %w", err)
	}
	return nil
}

// Reconcile publishes the authority of one Secret.
func (p *publisher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := p.client.Get(ctx, request.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(secret.Data[AuthorityEntry]) == 0 {
		return reconcile.Result{}, nil
	}
	trusted := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: secret.Namespace, Name: TrustConfigMap}
	if err := p.client.Get(ctx, name, trusted); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	key := trustKey(secret.Name)
	bundle := mergeAuthorities(secret.Data[AuthorityEntry], []byte(trusted.Data[key]), time.Now())
	if bytes.Equal(bundle, []byte(trusted.Data[key])) {
		return reconcile.Result{}, nil
	}
	changed := trusted.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string]string{}
	}
	changed.Data[key] = string(bundle)
	if err := p.client.Update(ctx, changed); err != nil {
		return reconcile.Result{}, fmt.Errorf("publishing the authority of Secret %s: %w", secret.Name, err)
	}
	return reconcile.Result{}, nil
}

// mergeAuthorities puts the newest authorities before those trusted so far, without expired and surplus ones.
func mergeAuthorities(newest, trusted []byte, now time.Time) []byte {
	var merged bytes.Buffer
	seen := map[string]bool{}
	for rest := append(bytes.Clone(newest), trusted...); len(seen) < keptAuthorities; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(cert.NotAfter) || seen[string(cert.Raw)] {
			continue
		}
		seen[string(cert.Raw)] = true
		// Encoding into a buffer can't fail.
		_ = pem.Encode(&merged, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return merged.Bytes()
}
