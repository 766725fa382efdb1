package virtweb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a certificate of a name, and its key.
func writePair(t *testing.T, folder, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	write(t, filepath.Join(folder, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mounted returns options whose files are there.
func mounted(t *testing.T) options {
	t.Helper()
	folder := t.TempDir()
	writePair(t, folder, "first")
	write(t, filepath.Join(folder, "key"), strings.Repeat("k", 32))
	return options{
		origin: "https://vms.example.com", upstream: "https://kubernetes.default.svc", authority: filepath.Join(folder, "tls.crt"),
		certificates: folder, sessionKey: filepath.Join(folder, "key"), address: "127.0.0.1:0",
	}
}

func TestWithoutItsFilesItDoesNotStart(t *testing.T) {
	if _, err := mounted(t).settings(); err != nil {
		t.Fatalf("with all of them: %v", err)
	}
	for what, test := range map[string]struct {
		change func(*options)
		want   string
	}{
		"no authority":            {func(o *options) { o.authority += "x" }, "authority"},
		"an authority of no sort": {func(o *options) { o.authority = o.sessionKey }, "has no certificate"},
		"no key of sessions":      {func(o *options) { o.sessionKey += "x" }, "key of sessions"},
		"no certificate":          {func(o *options) { o.certificates += "x" }, "certificate of the web console"},
		"an API server by HTTP":   {func(o *options) { o.upstream = "http://kubernetes.default.svc" }, "no address of https"},
	} {
		o := mounted(t)
		test.change(&o)
		if _, err := o.settings(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want an error with %q", what, err, test.want)
		}
	}
}

func TestItsTransportHasNoCredentials(t *testing.T) {
	settings, err := mounted(t).settings()
	if err != nil {
		t.Fatal(err)
	}
	if settings.SignIn == nil || string(settings.SignIn.Key) != strings.Repeat("k", 32) {
		t.Errorf("people sign in by %+v", settings.SignIn)
	}
	flags := NewCommand().Flags()
	for _, name := range []string{"kubeconfig", "token"} {
		if flags.Lookup(name) != nil {
			t.Errorf("it takes credentials by --%s", name)
		}
	}
}

func TestARenewedCertificateIsServed(t *testing.T) {
	folder, now := t.TempDir(), time.Now()
	writePair(t, folder, "first")
	p := &pair{folder: folder, now: func() time.Time { return now }}
	isServed := func(want string) {
		t.Helper()
		got, err := p.current(nil)
		if err != nil || got.Leaf.Subject.CommonName != want {
			t.Fatalf("got %+v, %v; want that of %q", got, err, want)
		}
	}
	isServed("first")
	writePair(t, folder, "second")
	isServed("first")
	now = now.Add(lookEvery)
	isServed("second")
	write(t, filepath.Join(folder, "tls.key"), "half")
	now = now.Add(lookEvery)
	isServed("second")
}
