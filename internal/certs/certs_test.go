package certs

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

// issued is a certificate with its authority, made as the rotator makes them.
type issued struct{ authority, cert, key []byte }

func issue(t *testing.T, secret string, usage x509.ExtKeyUsage) issued {
	t.Helper()
	r := newRotator(secret, usage, nil)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority, err := r.CreateCACert(from, to)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := r.CreateCertPEM(authority, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return issued{authority.CertPEM, cert, key}
}

func source(identity Identity, own issued, trusted ...issued) *Source {
	s := NewSource(nil, identity)
	s.setPair(own.cert, own.key)
	s.setTrust(bundle(trusted...))
	return s
}

func bundle(trusted ...issued) []byte {
	var all []byte
	for _, i := range trusted {
		all = append(all, i.authority...)
	}
	return all
}

// serve answers with the name on the client's certificate.
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
	return "https://" + listener.Addr().String()
}

func call(t *testing.T, url string, config *tls.Config) (string, error) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestMutualTLS(t *testing.T) {
	handler := issue(t, HandlerServerSecret, x509.ExtKeyUsageServerAuth)
	api := issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth)
	stranger := issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth)
	url := serve(t, source(HandlerServer(), handler, api).ServerConfig())

	got, err := call(t, url, source(HandlerClient(), api, handler).ClientConfig())
	if err != nil || got != "virt-api-client.kubevirt.svc" {
		t.Errorf("virt-api calls virt-handler: %q, %v", got, err)
	}
	if _, err := call(t, url, source(HandlerClient(), stranger, handler).ClientConfig()); err == nil {
		t.Error("virt-handler answers a client of another authority")
	}
	if _, err := call(t, url, source(HandlerClient(), api, stranger).ClientConfig()); err == nil {
		t.Error("virt-api trusts a server of another authority")
	}
	// What a node holds must not pass for virt-api.
	if _, err := call(t, url, source(HandlerClient(), handler, handler).ClientConfig()); err == nil {
		t.Error("virt-handler answers another virt-handler")
	}
}

func TestServerOfAnotherNameIsRefused(t *testing.T) {
	// The authority is the right one; the certificate is for something else.
	other := issue(t, APISecret, x509.ExtKeyUsageServerAuth)
	api := issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth)
	url := serve(t, source(HandlerServer(), other, api).ServerConfig())
	_, err := call(t, url, source(HandlerClient(), api, other).ClientConfig())
	if err == nil || !strings.Contains(err.Error(), "not virt-handler.kubevirt.svc") {
		t.Errorf("error is %v", err)
	}
}

// Both sides rotate while they run, authorities included; old and new are
// trusted side by side as the ConfigMap has them.
func TestRotationNeedsNoRestart(t *testing.T) {
	oldHandler, newHandler := issue(t, HandlerServerSecret, x509.ExtKeyUsageServerAuth), issue(t, HandlerServerSecret, x509.ExtKeyUsageServerAuth)
	oldAPI, newAPI := issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth), issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth)
	server, client := source(HandlerServer(), oldHandler, oldAPI), source(HandlerClient(), oldAPI, oldHandler)
	url, config := serve(t, server.ServerConfig()), client.ClientConfig()
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"nothing has changed", func() {}},
		{"the client trusts the server's next authority", func() { client.setTrust(bundle(newHandler, oldHandler)) }},
		{"the server has its next certificate", func() { server.setPair(newHandler.cert, newHandler.key) }},
		{"the server trusts the client's next authority", func() { server.setTrust(bundle(newAPI, oldAPI)) }},
		{"the client has its next certificate", func() { client.setPair(newAPI.cert, newAPI.key) }},
		{"the old ones are forgotten", func() { client.setTrust(bundle(newHandler)); server.setTrust(bundle(newAPI)) }},
	} {
		step.change()
		if _, err := call(t, url, config); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
}

func TestSourceIsReadyWhenItIsComplete(t *testing.T) {
	own, peer := issue(t, HandlerServerSecret, x509.ExtKeyUsageServerAuth), issue(t, HandlerClientSecret, x509.ExtKeyUsageClientAuth)
	s := NewSource(nil, HandlerServer())
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
	s.setTrust(nil)
	s.setTrust(peer.authority)
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
