// Package workertlstest creates authorities and certificate folders for package workertls. Only tests may import it.
package workertlstest

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
	"testing"
	"time"

	"drydock.dev/drydock/internal/certs/workertls"
)

// Secret returns an authority's data like cert-controller's, with another kind of key.
func Secret(t testing.TB) map[string][]byte {
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
	return map[string][]byte{
		workertls.AuthorityFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"ca.key":                pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}
}

// Authority returns a new authority.
func Authority(t testing.TB) *workertls.Authority {
	t.Helper()
	a, err := workertls.NewAuthority(Secret(t))
	must(t, err)
	return a
}

// Server returns a folder with a server's certificate.
func Server(t testing.TB, by *workertls.Authority, name string) string {
	t.Helper()
	data, err := by.Server(name, time.Now())
	must(t, err)
	return Folder(t, data)
}

// Client returns a folder with a client's certificate.
func Client(t testing.TB, by *workertls.Authority, name string) string {
	t.Helper()
	data, err := by.Client(name, time.Now())
	must(t, err)
	return Folder(t, data)
}

// Folder returns a folder like a mounted Secret.
func Folder(t testing.TB, data map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range data {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
