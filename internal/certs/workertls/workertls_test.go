package workertls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority makes one as cert-controller does, but for the kind of key.
func authority(t *testing.T) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	a, err := NewAuthority(map[string][]byte{
		AuthorityFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		authorityKey:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	})
	must(t, err)
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are a worker's Secret as the kubelet mounts it.
func files(t *testing.T, data map[string][]byte, err error) string {
	t.Helper()
	must(t, err)
	dir := t.TempDir()
	for name, text := range data {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// call asks the server for the role that it sees, as the client in dir.
func call(t *testing.T, address, dir, server string) (string, error) {
	t.Helper()
	config, err := ClientConfig(dir, server)
	must(t, err)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := c.Get("https://" + address)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestAWorkerKnowsItsCallers(t *testing.T) {
	a, other, now := authority(t), authority(t), time.Now()
	name := ServerName("disk", "ns")
	signed, err := a.Server(name, now)
	dir := files(t, signed, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, map[Role]string{Stranger: "stranger", Proxy: "proxy", Source: "source"}[Caller(r.TLS, name)])
		})}
	go func() { _ = server.Serve(tls.NewListener(listener, ServerConfig(dir))) }()
	t.Cleanup(func() { _ = server.Close() })
	clientAt := func(by *Authority, name string, at time.Time) string {
		signed, err := by.Client(name, at)
		return files(t, signed, err)
	}
	client := func(by *Authority, name string) string { return clientAt(by, name, now) }
	otherServer, err := a.Server(ServerName("other", "ns"), now)

	for what, test := range map[string]struct{ dir, want string }{
		"the upload proxy":                    {client(a, ProxyName), "proxy"},
		"the source of a clone into this":     {client(a, SourceName("disk", "ns")), "source"},
		"the source of a clone into another":  {client(a, SourceName("disk", "other")), "stranger"},
		"a source that is called like this":   {client(a, name), "stranger"},
		"a client that claims to be anybody":  {client(a, "*.kubevirt.svc"), "stranger"},
		"a proxy of another authority":        {mixed(t, client(other, ProxyName), dir), ""},
		"the server of another claim":         {files(t, otherServer, err), ""},
		"a certificate that is not valid yet": {clientAt(a, ProxyName, now.Add(48*time.Hour)), ""},
		"a certificate that has expired":      {clientAt(a, ProxyName, now.Add(-31*24*time.Hour)), ""},
	} {
		got, err := call(t, listener.Addr().String(), test.dir, name)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q (%v), want %q", what, got, err, test.want)
		}
	}
	if _, err := call(t, listener.Addr().String(), client(a, ProxyName), ServerName("other", "ns")); err == nil {
		t.Error("a server of another name is trusted")
	}
}

// mixed is a stranger's certificate with the trust of the server.
func mixed(t *testing.T, stranger, server string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(server, AuthorityFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(stranger, AuthorityFile), text, 0o600))
	return stranger
}

func TestACertificateIsMadeAgainInTime(t *testing.T) {
	a, now := authority(t), time.Now()
	signed, err := a.Server("a", now)
	must(t, err)
	for what, test := range map[string]struct {
		by   *Authority
		name string
		at   time.Time
		want bool
	}{
		"fresh":             {a, "a", now, true},
		"half of its time":  {a, "a", now.Add(15 * 24 * time.Hour), true},
		"ten days are left": {a, "a", now.Add(20*24*time.Hour + time.Minute), false},
		"another name":      {a, "b", now, false},
		"another authority": {authority(t), "a", now, false},
	} {
		if got := test.by.Good(signed, test.name, test.at); got != test.want {
			t.Errorf("%s: good is %v", what, got)
		}
	}
	if a.Good(nil, "a", now) {
		t.Error("a Secret without content is good")
	}
}

func TestTheNameIsReadFromTheCertificate(t *testing.T) {
	signed, err := authority(t).Server(ServerName("disk", "ns"), time.Now())
	name, nameErr := Name(files(t, signed, err))
	if nameErr != nil || name != "cdi-upload-disk.ns.svc" {
		t.Errorf("name %q, %v", name, nameErr)
	}
	if _, err := Name(t.TempDir()); err == nil {
		t.Error("an empty folder has a name")
	}
}
