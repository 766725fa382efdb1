package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/render"
)

// TLS is etcd's own code, and the files are from its rendered command line.
func etcdListener(t *testing.T, c layout.Cluster) net.Listener {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range render.Etcd(c) {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	info := transport.TLSInfo{
		CertFile: flags["cert-file"], KeyFile: flags["key-file"], TrustedCAFile: flags["trusted-ca-file"],
		ClientCertAuth: flags["client-cert-auth"] == "true",
	}
	config, err := info.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			_, _ = conn.Write([]byte("in")) // a refused client reads an error instead
			_ = conn.Close()
		}
	}()
	return listener
}

func admitted(c layout.Cluster, listener net.Listener, name string) error {
	pair, err := tls.LoadX509KeyPair(c.PKI(name+".crt"), c.PKI(name+".key"))
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(c.PKI("etcd-ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	// GetClientCertificate sends it whether or not the server names its CA.
	conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{
		RootCAs: roots, ServerName: c.HostIP().String(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer is read
	_, err = conn.Read(make([]byte, 2))
	return err
}

// A client of etcd reads every secret, whatever RBAC says, and every node, component and user has a certificate
// of the cluster.
func TestEtcdAdmitsTheAPIServerOnly(t *testing.T) {
	c := newCluster(t)
	ensure(t, c, time.Now())
	listener := etcdListener(t, c)
	certs, err := filepath.Glob(c.PKI("*.crt"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, file := range certs {
		name := strings.TrimSuffix(filepath.Base(file), ".crt")
		err := admitted(c, listener, name)
		switch name {
		case "apiserver-etcd-client":
			if err != nil {
				t.Errorf("etcd refuses the API server: %v", err)
			}
		case "etcd", "etcd-ca":
		default:
			if err == nil {
				t.Errorf("etcd admits %s", name)
			}
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("only %d certificates were tried: %q", refused, certs)
	}
}

// In an earlier build, the cluster's CA signed etcd's certificates.
func TestAnOlderClustersEtcdGetsItsOwnAuthority(t *testing.T) {
	c := newCluster(t)
	ca, err := newAuthority(authorities[clusterCA], c.PKI("ca.crt"), c.PKI("ca.key"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for file, leaf := range map[string]Leaf{"etcd": {Name: "etcd", Hosts: []string{c.HostIP().String()}}, "apiserver-etcd-client": {Name: "kube-apiserver"}} {
		if _, err := ca.ensure(leaf, c.PKI(file+".crt"), c.PKI(file+".key"), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	old := read(t, c.PKI("ca.crt"))
	ensure(t, c, time.Now())
	listener := etcdListener(t, c)
	if err := admitted(c, listener, "apiserver-etcd-client"); err != nil {
		t.Errorf("etcd refuses the API server after the migration: %v", err)
	}
	if err := admitted(c, listener, "user-admin"); err == nil {
		t.Error("etcd admits the administrator after the migration")
	}
	if read(t, c.PKI("ca.crt")) != old {
		t.Error("the migration made the cluster's authority anew: every kubeconfig out there is void")
	}
}
