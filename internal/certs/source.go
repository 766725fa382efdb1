package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/internal/clusterconfig"
)

// Source follows one Identity through the API and gives TLS configurations
// that always use its newest certificate and trust.
type Source struct {
	client   kubernetes.Interface
	identity Identity

	pair  atomic.Pointer[KeyPair]
	trust atomic.Pointer[x509.CertPool]

	mu        sync.Mutex
	ready     chan struct{}
	isReady   bool
	listeners []func()
}

// KeyPair is a certificate as PEM and as TLS wants it.
type KeyPair struct {
	CertPEM, KeyPEM []byte
	tls             *tls.Certificate
}

// NewSource makes a Source; Start lets it follow.
func NewSource(client kubernetes.Interface, identity Identity) *Source {
	return &Source{client: client, identity: identity, ready: make(chan struct{})}
}

// Start follows the identity until ctx ends. It is a controller-runtime
// Runnable.
func (s *Source) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	secrets := s.informer("secrets", s.identity.Secret, &corev1.Secret{}, func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			s.setPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		}
	})
	wg.Go(func() { secrets.RunWithContext(ctx) })
	if s.identity.TrustKey != "" {
		authorities := s.informer("configmaps", TrustConfigMap, &corev1.ConfigMap{}, func(obj any) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				s.setTrust([]byte(cm.Data[s.identity.TrustKey]))
			}
		})
		wg.Go(func() { authorities.RunWithContext(ctx) })
	}
	<-ctx.Done()
	return nil
}

// informer watches the one object of that name; its RBAC needs no more than
// the name.
func (s *Source) informer(resource, name string, kind runtime.Object, seen func(any)) cache.SharedInformer {
	lw := cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), resource,
		clusterconfig.Namespace, fields.OneTermEqualSelector("metadata.name", name))
	informer := cache.NewSharedInformer(lw, kind, 0)
	// An informer that has not been started takes every handler.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
	})
	return informer
}

// setPair takes a certificate over; one that is incomplete (the Secret exists
// before its content does) is passed over, so that the last good one serves.
func (s *Source) setPair(certPEM, keyPEM []byte) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return
	}
	s.pair.Store(&KeyPair{CertPEM: certPEM, KeyPEM: keyPEM, tls: &pair})
	s.changed()
}

func (s *Source) setTrust(pem []byte) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return
	}
	s.trust.Store(pool)
	s.changed()
}

func (s *Source) changed() {
	s.mu.Lock()
	if !s.isReady && s.complete() == nil {
		s.isReady = true
		close(s.ready)
	}
	listeners := s.listeners
	s.mu.Unlock()
	for _, notify := range listeners {
		notify()
	}
}

// Ready is closed once there is a certificate to serve with and, where one is
// needed, an authority to trust.
func (s *Source) Ready() <-chan struct{} { return s.ready }

// complete says what is missing.
func (s *Source) complete() error {
	if s.pair.Load() == nil {
		return fmt.Errorf("no certificate in Secret %s/%s yet", clusterconfig.Namespace, s.identity.Secret)
	}
	if s.identity.TrustKey != "" && s.trust.Load() == nil {
		return fmt.Errorf("no authority %s in ConfigMap %s/%s yet",
			s.identity.TrustKey, clusterconfig.Namespace, TrustConfigMap)
	}
	return nil
}

// Current is the newest certificate, nil before there is one.
func (s *Source) Current() *KeyPair { return s.pair.Load() }

// OnChange has notify called after every change. notify must not block.
func (s *Source) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, notify)
}

// ServerConfig is for a server: with a TrustKey, clients must show a
// certificate of the trusted authorities.
func (s *Source) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if err := s.complete(); err != nil {
				return nil, err
			}
			config := &tls.Config{
				MinVersion:   tls.VersionTLS12,
				Certificates: []tls.Certificate{*s.pair.Load().tls},
				NextProtos:   []string{"http/1.1"},
			}
			if s.identity.TrustKey != "" {
				config.ClientAuth = tls.RequireAndVerifyClientCert
				config.ClientCAs = s.trust.Load()
			}
			return config, nil
		},
	}
}

// ClientConfig is for a client that shows its certificate and trusts the
// authorities of the TrustKey only. The peer is known by the identity's
// ServerName, whatever address it was called by.
func (s *Source) ClientConfig() *tls.Config { return s.ClientConfigFor(s.identity.ServerName) }

// ClientConfigFor is for a client of peers that have a name each.
func (s *Source) ClientConfigFor(server string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: server,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if err := s.complete(); err != nil {
				return nil, err
			}
			return s.pair.Load().tls, nil
		},
		// The roots change with a rotation, RootCAs can't; so the chain is
		// verified in VerifyConnection instead, as strictly.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return s.verifyServer(state, server)
		},
	}
}

func (s *Source) verifyServer(state tls.ConnectionState, name string) error {
	if err := s.complete(); err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	options := x509.VerifyOptions{
		Roots:         s.trust.Load(),
		DNSName:       name,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}
