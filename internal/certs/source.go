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

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// Source watches one Identity and returns TLS configurations that always use its newest certificate and trust.
type Source struct {
	client   kubernetes.Interface
	identity Identity

	pair  atomic.Pointer[KeyPair]
	trust atomic.Pointer[x509.CertPool]
	own   atomic.Pointer[x509.CertPool]
	// restrict further restricts a server's configuration.
	restrict atomic.Pointer[func(*tls.Config)]

	mu        sync.Mutex
	ready     chan struct{}
	isReady   bool
	listeners []func()
}

// KeyPair is a certificate; one from Use has no PEM.
type KeyPair struct {
	CertPEM, KeyPEM []byte
	tls             *tls.Certificate
}

// NewSource returns an idle Source.
func NewSource(client kubernetes.Interface, identity Identity) *Source {
	return &Source{client: client, identity: identity, ready: make(chan struct{})}
}

// Start watches the identity until ctx ends.
func (s *Source) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.identity.Secret != "" {
		secrets := s.informer("secrets", s.identity.Secret, &corev1.Secret{}, func(obj any) {
			if secret, ok := obj.(*corev1.Secret); ok {
				s.setPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
			}
		})
		wg.Go(func() { secrets.RunWithContext(ctx) })
	}
	if s.identity.TrustKey != "" || s.identity.OwnKey != "" {
		authorities := s.informer("configmaps", TrustConfigMap, &corev1.ConfigMap{}, func(obj any) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				s.setPool(&s.trust, cm.Data[s.identity.TrustKey])
				s.setPool(&s.own, cm.Data[s.identity.OwnKey])
			}
		})
		wg.Go(func() { authorities.RunWithContext(ctx) })
	}
	<-ctx.Done()
	return nil
}

// informer watches one object, which is all that the RBAC permits.
func (s *Source) informer(resource, name string, kind runtime.Object, seen func(any)) cache.SharedInformer {
	lw := cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), resource,
		clusterconfig.Namespace, fields.OneTermEqualSelector("metadata.name", name))
	informer := cache.NewSharedInformer(lw, kind, 0)
	// Adding a handler fails only after the informer's start.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
	})
	return informer
}

// setPair ignores an incomplete certificate, since a Secret exists before its content: the last valid one stays in use.
func (s *Source) setPair(certPEM, keyPEM []byte) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return
	}
	s.pair.Store(&KeyPair{CertPEM: certPEM, KeyPEM: keyPEM, tls: &pair})
	s.changed()
}

// Use serves with a certificate that the holder obtained itself.
func (s *Source) Use(pair *tls.Certificate) {
	s.pair.Store(&KeyPair{tls: pair})
	s.changed()
}

// setPool ignores an empty bundle likewise.
func (s *Source) setPool(pool *atomic.Pointer[x509.CertPool], pem string) {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(pem)) {
		return
	}
	pool.Store(authorities)
	s.changed()
}

// OwnAuthorities returns the authorities of the holder's own certificate (Identity.OwnKey), nil while unknown.
func (s *Source) OwnAuthorities() *x509.CertPool { return s.own.Load() }

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

// Ready is closed once there is a certificate and, if needed, an authority to trust.
func (s *Source) Ready() <-chan struct{} { return s.ready }

func (s *Source) complete() error {
	if s.pair.Load() == nil && s.identity.Secret == "" {
		return errors.New("no certificate yet")
	}
	if s.pair.Load() == nil {
		return fmt.Errorf("no certificate in Secret %s/%s yet", clusterconfig.Namespace, s.identity.Secret)
	}
	if s.identity.TrustKey != "" && s.trust.Load() == nil {
		return fmt.Errorf("no authority %s in ConfigMap %s/%s yet",
			s.identity.TrustKey, clusterconfig.Namespace, TrustConfigMap)
	}
	return nil
}

// Current returns the newest certificate, nil if there is none yet.
func (s *Source) Current() *KeyPair { return s.pair.Load() }

// OnChange has notify called after every change; it must not block.
func (s *Source) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, notify)
}

// Restrict sets a function that restricts each new connection's configuration. It may be called at any time.
func (s *Source) Restrict(restrict func(*tls.Config)) { s.restrict.Store(&restrict) }

// ServerConfig returns a server's configuration. With a TrustKey, clients must have a certificate of its authorities.
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
			if restrict := s.restrict.Load(); restrict != nil {
				(*restrict)(config)
			}
			if s.identity.TrustKey != "" {
				config.ClientAuth = tls.RequireAndVerifyClientCert
				config.ClientCAs = s.trust.Load()
			}
			return config, nil
		},
	}
}

// ClientConfig returns a client's configuration, which trusts only the authorities of the TrustKey. The peer's
// certificate must be for the host of the URL.
func (s *Source) ClientConfig() *tls.Config { return s.ClientConfigFor("") }

// ClientConfigFor is ClientConfig for a peer of that name at any address.
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
		// RootCAs can't follow a rotation, so VerifyConnection verifies the chain, as strictly.
		InsecureSkipVerify: true,
		VerifyConnection:   s.verifyServer,
	}
}

func (s *Source) verifyServer(state tls.ConnectionState) error {
	if err := s.complete(); err != nil {
		return err
	}
	return verifyServer(state, s.trust.Load())
}

func verifyServer(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	// Every certificate is valid for an empty name.
	if state.ServerName == "" {
		return errors.New("a server must be called by a name, for its certificate to be checked")
	}
	options := x509.VerifyOptions{
		Roots:         roots,
		DNSName:       state.ServerName,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return fmt.Errorf("the certificate of %s is not accepted: %w", state.ServerName, err)
	}
	return nil
}
