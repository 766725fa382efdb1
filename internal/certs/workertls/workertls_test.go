package workertls_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/certs/workertls/workertlstest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func call(t *testing.T, address, dir, server string) (string, error) {
	t.Helper()
	config, err := workertls.ClientConfig(dir, server)
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
	a, other, now := workertlstest.Authority(t), workertlstest.Authority(t), time.Now()
	name := workertls.ServerName("disk", "ns")
	dir := workertlstest.Server(t, a, name)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, map[workertls.Role]string{workertls.Unknown: "stranger", workertls.Proxy: "proxy", workertls.Source: "source"}[workertls.Caller(r.TLS, name)])
		})}
	go func() { _ = server.Serve(tls.NewListener(listener, workertls.ServerConfig(dir))) }()
	t.Cleanup(func() { _ = server.Close() })
	clientAt := func(by *workertls.Authority, name string, at time.Time) string {
		signed, err := by.Client(name, at)
		must(t, err)
		return workertlstest.Folder(t, signed)
	}
	client := func(by *workertls.Authority, name string) string { return clientAt(by, name, now) }

	for what, test := range map[string]struct{ dir, want string }{
		"the upload proxy":                    {client(a, workertls.ProxyName), "proxy"},
		"the source of a clone into this":     {client(a, workertls.SourceName("disk", "ns")), "source"},
		"the source of a clone into another":  {client(a, workertls.SourceName("disk", "other")), "stranger"},
		"a source that is called like this":   {client(a, name), "stranger"},
		"a client that claims to be anybody":  {client(a, "*.kubevirt.svc"), "stranger"},
		"a proxy of another authority":        {mixed(t, client(other, workertls.ProxyName), dir), ""},
		"the server of another claim":         {workertlstest.Server(t, a, workertls.ServerName("other", "ns")), ""},
		"a certificate that is not valid yet": {clientAt(a, workertls.ProxyName, now.Add(48*time.Hour)), ""},
		"a certificate that has expired":      {clientAt(a, workertls.ProxyName, now.Add(-31*24*time.Hour)), ""},
	} {
		got, err := call(t, listener.Addr().String(), test.dir, name)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q (%v), want %q", what, got, err, test.want)
		}
	}
	if _, err := call(t, listener.Addr().String(), client(a, workertls.ProxyName), workertls.ServerName("other", "ns")); err == nil {
		t.Error("a server of another name is trusted")
	}
}

// The certificate is a stranger's, the trust the server's.
func mixed(t *testing.T, stranger, server string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(server, workertls.AuthorityFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(stranger, workertls.AuthorityFile), text, 0o600))
	return stranger
}

func TestTheNameIsReadFromTheCertificate(t *testing.T) {
	name, err := workertls.Name(workertlstest.Server(t, workertlstest.Authority(t), workertls.ServerName("disk", "ns")))
	if err != nil || name != "cdi-upload-disk.ns.svc" {
		t.Errorf("name %q, %v", name, err)
	}
	if _, err := workertls.Name(t.TempDir()); err == nil {
		t.Error("an empty folder has a name")
	}
}
