package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/local/internal/layout"
)

// start is the creation time of these tests' clusters.
var start = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func ensure(t *testing.T, c layout.Cluster, now time.Time) {
	t.Helper()
	if err := Ensure(c, now); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func newCluster(t *testing.T) layout.Cluster {
	t.Helper()
	return layout.Cluster{Name: "pki", Dir: t.TempDir(), Net: 77, Nodes: []string{"node1", "node2"}}
}

func TestCertificatesAreGoodForTheirUse(t *testing.T) {
	c := layout.Cluster{Name: "pki", Dir: t.TempDir(), Net: 77, Nodes: []string{"node1", "node2"}}
	ensure(t, c, time.Now())
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(c.PKI("ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("reading the authority: %v", err)
	}
	for file, host := range map[string]string{
		"apiserver.crt":     c.HostIP().String(),
		"kubelet-node2.crt": c.NodeIP("node2").String(),
	} {
		cert := parse(t, c.PKI(file))
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s does not serve %s: %v", file, host, err)
		}
	}
	kubelet := parse(t, c.PKI("kubelet-node1.crt"))
	if kubelet.Subject.CommonName != "system:node:node1" || kubelet.Subject.Organization[0] != "system:nodes" {
		t.Errorf("the node authorizer does not know %s", kubelet.Subject)
	}
	front := parse(t, c.PKI("front-proxy-client.crt"))
	if _, err := front.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the front proxy's certificate is signed by the cluster's authority: whoever has it would be a user")
	}
}

func TestKubeconfigIsForItsOwnerOnly(t *testing.T) {
	c := layout.Cluster{Name: "pki", Dir: t.TempDir(), Net: 77}
	ensure(t, c, time.Now())
	info, err := os.Stat(c.Kubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v", info.Mode(), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil || config.Host != c.APIServer() {
		t.Errorf("the kubeconfig leads to %v, %v", config, err)
	}
	keys, err := filepath.Glob(c.PKI("*.key"))
	if err != nil || len(keys) == 0 {
		t.Fatalf("no keys: %v", err)
	}
	for _, key := range keys {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", key, info.Mode(), err)
		}
	}
}

func parse(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
