package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	certificatesv1 "k8s.io/api/certificates/v1"

	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// issued is a certificate with its CA, made as the rotator makes them.
type issued struct{ authority, authorityKey, cert, key []byte }

func issue(t *testing.T, secret string) issued {
	t.Helper()
	r := newRotator(secret, x509.ExtKeyUsageClientAuth, nil)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority, err := r.CreateCACert(from, to)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := r.CreateCertPEM(authority, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return issued{authority.CertPEM, authority.KeyPEM, cert, key}
}

func source(identity Identity, own issued, trusted ...issued) *Source {
	s := NewSource(nil, identity)
	s.setPair(own.cert, own.key)
	s.setPool(&s.trust, bundle(trusted...))
	return s
}

func bundle(trusted ...issued) string {
	var all []byte
	for _, i := range trusted {
		all = append(all, i.authority...)
	}
	return string(all)
}

func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}),
	}
	go func() { _ = server.Serve(tls.NewListener(listener, config)) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

func call(t *testing.T, address, name string, config *tls.Config) (string, error) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
	response, err := c.Get("https://" + name)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func request(t *testing.T, name string, usages nodecert.Usages) (*certificatesv1.CertificateSigningRequest, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := nodecert.New(name, key, usages)
	if err != nil {
		t.Fatal(err)
	}
	request.Spec.Username = nodecert.Account
	request.Spec.Extra = map[string]certificatesv1.ExtraValue{
		"authentication.kubernetes.io/node-name": {name}, "authentication.kubernetes.io/pod-uid": {"u"},
	}
	return request, key
}

func node(t *testing.T, name string, authority issued, trusted ...issued) *Source {
	t.Helper()
	s := NewSource(nil, HandlerServer())
	s.setPool(&s.trust, bundle(trusted...))
	s.Use(certificate(t, name, authority, nodecert.ServerAndClient))
	return s
}

func TestMutualTLS(t *testing.T) {
	handlers := issue(t, HandlerAuthoritySecret)
	api := issue(t, HandlerClientSecret)
	stranger := issue(t, HandlerClientSecret)
	address := serve(t, node(t, "node1", handlers, api).ServerConfig())
	node1 := nodecert.DNSName("node1")

	got, err := call(t, address, node1, source(HandlerClient(), api, handlers).ClientConfig())
	if err != nil || got != "virt-api-client.kubevirt.svc" {
		t.Errorf("virt-api calls virt-handler: %q, %v", got, err)
	}
	if _, err := call(t, address, node1, source(HandlerClient(), stranger, handlers).ClientConfig()); err == nil {
		t.Error("virt-handler answers a client of another authority")
	}
	if _, err := call(t, address, node1, source(HandlerClient(), api, stranger).ClientConfig()); err == nil {
		t.Error("virt-api trusts a server of another authority")
	}
	// A node's certificate must not pass for virt-api.
	config := source(HandlerClient(), api, handlers).ClientConfig()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return node(t, "node2", handlers, api).pair.Load().tls, nil
	}
	if _, err := call(t, address, node1, config); err == nil {
		t.Error("virt-handler answers another virt-handler")
	}
}

// An attacked node redirects another node's connections to itself: it has a certificate of the right CA, but must
// not pass for the other.
func TestANodeDoesNotPassForAnother(t *testing.T) {
	handlers := issue(t, HandlerAuthoritySecret)
	api := issue(t, HandlerClientSecret)
	config := source(HandlerClient(), api, handlers).ClientConfig()
	address := serve(t, node(t, "node1", handlers, api).ServerConfig())
	if _, err := call(t, address, nodecert.DNSName("node1"), config); err != nil {
		t.Errorf("as itself: %v", err)
	}
	for _, name := range []string{nodecert.DNSName("node2"), "virt-handler.kubevirt.svc", "virt-api.kubevirt.svc"} {
		_, err := call(t, address, name, config)
		if want := "the certificate of " + name + " is not accepted"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("as %s: error is %v, want %q", name, err, want)
		}
	}
	// Without a name the certificate can't be verified.
	if _, err := call(t, address, "127.0.0.1", config); err == nil || !strings.Contains(err.Error(), "must be called by a name") {
		t.Errorf("as an address: error is %v", err)
	}
	// cert-controller makes another certificate beside the CA.
	beside := serve(t, source(HandlerServer(), handlers, api).ServerConfig())
	for _, name := range []string{nodecert.DNSName("node1"), "virt-handler-ca.kubevirt.svc"} {
		if _, err := call(t, beside, name, config); err == nil {
			t.Errorf("the authority's own certificate passes for %s", name)
		}
	}
}

// Both sides rotate while they run, including their CAs: the old one and the new one must be trusted.
func TestRotationNeedsNoRestart(t *testing.T) {
	oldHandler, newHandler := issue(t, HandlerAuthoritySecret), issue(t, HandlerAuthoritySecret)
	oldAPI, newAPI := issue(t, HandlerClientSecret), issue(t, HandlerClientSecret)
	server, client := node(t, "node1", oldHandler, oldAPI), source(HandlerClient(), oldAPI, oldHandler)
	address, config := serve(t, server.ServerConfig()), client.ClientConfig()
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"nothing has changed", func() {}},
		{"the client trusts the server's next authority", func() { client.setPool(&client.trust, bundle(newHandler, oldHandler)) }},
		{"the server has its next certificate", func() { server.Use(node(t, "node1", newHandler).pair.Load().tls) }},
		{"the server trusts the client's next authority", func() { server.setPool(&server.trust, bundle(newAPI, oldAPI)) }},
		{"the client has its next certificate", func() { client.setPair(newAPI.cert, newAPI.key) }},
		{"the old ones are forgotten", func() {
			client.setPool(&client.trust, bundle(newHandler))
			server.setPool(&server.trust, bundle(newAPI))
		}},
	} {
		step.change()
		if _, err := call(t, address, nodecert.DNSName("node1"), config); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
}

func TestSourceIsReadyWhenItIsComplete(t *testing.T) {
	own, peer := issue(t, HandlerClientSecret), issue(t, HandlerAuthoritySecret)
	s := NewSource(nil, HandlerClient())
	changes := 0
	s.OnChange(func() { changes++ })
	ready := func() bool {
		select {
		case <-s.Ready():
			return true
		default:
			return false
		}
	}
	s.setPair(nil, nil)
	s.setPair(own.cert, own.key)
	if ready() {
		t.Error("ready without an authority to trust")
	}
	if _, err := s.ServerConfig().GetConfigForClient(nil); err == nil || !strings.Contains(err.Error(), "no authority") {
		t.Errorf("serving too early: %v", err)
	}
	s.setPool(&s.trust, "")
	s.setPool(&s.trust, string(peer.authority))
	if !ready() {
		t.Error("not ready with everything there")
	}
	s.setPair([]byte("broken"), []byte("broken"))
	if s.Current() == nil || string(s.Current().CertPEM) != string(own.cert) {
		t.Error("a broken certificate replaced a good one")
	}
	if changes != 2 {
		t.Errorf("%d changes were told, want 2", changes)
	}
}

func TestAuthoritiesAreKeptUntilTheyExpire(t *testing.T) {
	now := time.Now()
	authority := func(end time.Time) string {
		r := &rotator.CertRotator{CAName: "a", CAOrganization: "o"}
		made, err := r.CreateCACert(now.Add(-2*time.Hour), end)
		if err != nil {
			t.Fatal(err)
		}
		return string(made.CertPEM)
	}
	a, b, c, d := authority(now.Add(time.Hour)), authority(now.Add(time.Hour)), authority(now.Add(time.Hour)), authority(now.Add(time.Hour))
	expired := authority(now.Add(-time.Hour))
	for name, test := range map[string]struct{ newest, trusted, want string }{
		"the first":                  {a, "", a},
		"nothing new":                {a, a, a},
		"a successor":                {b, a, b + a},
		"an expired one goes":        {b, expired + a, b + a},
		"at most three":              {d, c + b + a, d + c + b},
		"one that comes back":        {a, b + a, a + b},
		"what is no certificate":     {a, "hello", a},
		"text between certificates":  {b, "hello\n" + a, b + a},
		"nothing at all, not a word": {"", "", ""},
	} {
		if got := string(mergeAuthorities([]byte(test.newest), []byte(test.trusted), now)); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(test.want))
		}
	}
}

// Every node has the key that serves metrics.
func TestMetricsCertificatesOpenNothingElse(t *testing.T) {
	metrics, handlers, api, uploads := issue(t, MetricsSecret), issue(t, HandlerAuthoritySecret), issue(t, HandlerClientSecret), issue(t, UploadSecret)
	own := source(Identity{Secret: MetricsSecret}, metrics).pair.Load().tls
	for what, server := range map[string]*Source{
		"virt-handler's consoles": node(t, "node1", handlers, api),
		"a server of uploads":     source(UploadProxy(), uploads, uploads),
	} {
		address := serve(t, server.ServerConfig())
		show := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }}
		if _, err := call(t, address, "x", show); err == nil {
			t.Errorf("%s: it is let in", what)
		}
	}
	// It must not pass for a server that others call.
	address := serve(t, source(Identity{Secret: MetricsSecret, TrustKey: "x"}, metrics, api).ServerConfig())
	for _, name := range []string{nodecert.DNSName("node1"), MetricsName} {
		if _, err := call(t, address, name, source(HandlerClient(), api, handlers).ClientConfig()); err == nil || !strings.Contains(err.Error(), "is not accepted") {
			t.Errorf("as %s: %v", name, err)
		}
	}
}
