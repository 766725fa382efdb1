// Package nodekey is virt-handler's side of its certificate: it owns the private key, which exists only in memory,
// requests a certificate for its node, and renews it with another key. nodecert.Decide decides. The package must not
// delay guests: only virt-api's connections wait for a certificate (decision 234).
package nodekey

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"drydock.dev/drydock/internal/rules/cluster/nodecert"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// Holder serves with the certificate (certs.Source).
type Holder interface {
	// Use is called with every new certificate.
	Use(*tls.Certificate)
	// OwnAuthorities returns the authorities by which peers verify virt-handlers, nil while unknown.
	OwnAuthorities() *x509.CertPool
	// OnChange has notify called when these change; it must not block.
	OnChange(notify func())
}

// Keeper maintains the certificate of one node.
type Keeper struct {
	Node     string
	Requests certificatesclient.CertificateSigningRequestInterface
	Holder   Holder
	Log      logr.Logger
	// Used is called with every new certificate, too. It is optional.
	Used func(nodecert.InUse)

	inUse *nodecert.InUse
	// key is the key of the last request.
	key crypto.Signer
	// usages are requested next.
	usages  nodecert.Usages
	changed chan struct{}
	delays  wait.Backoff
}

const (
	// watchFor bounds the watch of the request, which is then read again.
	watchFor = 5 * time.Minute
	// watchPause follows a watch that ended early.
	watchPause = time.Second
)

// patient returns delays from 200 ms, for requests left by a restart, to 2 min, for a signer that keeps refusing.
func patient() wait.Backoff {
	delays := backoff.Doubling(200*time.Millisecond, 2*time.Minute)
	delays.Jitter = 0.2
	return delays
}

// Start maintains the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	k.changed = make(chan struct{}, 1)
	k.Holder.OnChange(func() {
		select {
		case k.changed <- struct{}{}:
		default:
		}
	})
	k.delays = patient()
	for ctx.Err() == nil {
		if err := k.step(ctx); err != nil && ctx.Err() == nil {
			inUse := "none: consoles, screens and ports of this node's guests can't be reached"
			if k.inUse != nil {
				inUse = "until " + k.inUse.Leaf.NotAfter.Format(time.RFC3339)
			}
			k.Log.Error(err, "this node's certificate is not renewed yet; streams go on with the one in use", "inUse", inUse)
			k.rest(ctx, k.delays.Step())
		}
	}
	return nil
}

// step observes, decides and acts once. The caller pauses after an error.
func (k *Keeper) step(ctx context.Context) error {
	request, err := k.Requests.Get(ctx, nodecert.RequestName(k.Node), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		request = nil
	case err != nil:
		return fmt.Errorf("reading the CertificateSigningRequest %s: %w", nodecert.RequestName(k.Node), err)
	}
	decision := nodecert.Decide(nodecert.Observation{
		Node: k.Node, Now: time.Now(), InUse: k.inUse, Trust: k.Holder.OwnAuthorities(), Key: k.key, Usages: k.usages, Request: request,
	})
	k.usages = decision.Usages
	switch decision.Step {
	case nodecert.Ask:
		return k.ask(ctx)
	case nodecert.Await:
		return k.await(ctx, request)
	case nodecert.Take:
		pair := decision.Certificate
		k.inUse = &nodecert.InUse{Leaf: pair.Leaf, Renew: nodecert.Renewal(pair.Leaf, time.Now(), mathrand.Float64())}
		k.Holder.Use(pair)
		if k.Used != nil {
			k.Used(*k.inUse)
		}
		k.delays = patient()
		k.Log.Info("this node has a new certificate", "until", pair.Leaf.NotAfter.Format(time.RFC3339), "migrations", nodecert.Calls(pair.Leaf))
	case nodecert.Discard:
		// Exactly this request is deleted. The pause after the error delays the next one.
		err := k.Requests.Delete(ctx, request.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(request.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting the CertificateSigningRequest %s: %w", request.Name, err)
		}
		return decision.Reason
	case nodecert.Rest:
		k.rest(ctx, time.Until(decision.Until))
	}
	return nil
}

func (k *Keeper) ask(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	request, err := nodecert.New(k.Node, key, k.usages)
	if err != nil {
		return err
	}
	k.key = key
	if _, err := k.Requests.Create(ctx, request, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the CertificateSigningRequest %s: %w", request.Name, err)
	}
	return nil
}

// await returns when the request, or the trusted authorities, may have changed.
func (k *Keeper) await(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	watcher, err := k.Requests.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", request.Name).String(),
		ResourceVersion: request.ResourceVersion,
		TimeoutSeconds:  new(int64(watchFor / time.Second)),
	})
	if err != nil {
		return fmt.Errorf("watching the CertificateSigningRequest %s: %w", request.Name, err)
	}
	defer watcher.Stop()
	timeout := time.NewTimer(watchFor)
	defer timeout.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
			return nil
		case <-timeout.C:
			return nil
		case event, ok := <-watcher.ResultChan():
			if !ok {
				k.rest(ctx, watchPause)
				return nil
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watching the CertificateSigningRequest %s: %w", request.Name, apierrors.FromObject(event.Object))
			}
			now, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || event.Type == watch.Deleted || now.UID != request.UID || now.ResourceVersion != request.ResourceVersion {
				return nil
			}
		}
	}
}

// rest waits until d has passed or the authorities change.
func (k *Keeper) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-k.changed:
	case <-timer.C:
	}
}
