// Package pki makes the cluster's certificates and the kubeconfigs that carry
// them. The authorities are made once and kept; what they sign is signed anew
// at every start, so that nothing of a long-lived cluster ever expires unseen.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	"drydock.dev/local/internal/layout"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// skew forgives clocks that were set back after a certificate was made.
	skew = time.Hour
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// PEM is the authority's own certificate.
	PEM []byte
}

// Leaf says what a certificate is to be good for.
type Leaf struct {
	Name   string
	Groups []string
	// Hosts are DNS names and addresses; a leaf with hosts serves, and every leaf is a client.
	Hosts []string
}

// Pair is a certificate and its key.
type Pair struct{ Cert, Key []byte }

// LoadAuthority reads an authority from two files, which it makes if there are none.
func LoadAuthority(name, certFile, keyFile string) (*Authority, error) {
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(name, certFile, keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the authority %s: %w", name, err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the authority %s: %w", name, err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("reading the authority %s: %s or %s is not PEM", name, certFile, keyFile)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the authority %s: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the authority %s: %w", name, err)
	}
	return &Authority{cert: cert, key: key, PEM: certPEM}, nil
}

func newAuthority(name, certFile, keyFile string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority %s: %w", name, err)
	}
	template, err := template(Leaf{Name: name}, authorityLife)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	// The key goes first: a certificate on disk means that its key is there.
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return nil, err
	}
	if err := layout.WriteFile(certFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	return LoadAuthority(name, certFile, keyFile)
}

// Sign makes a certificate.
func (a *Authority) Sign(leaf Leaf) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key for %s: %w", leaf.Name, err)
	}
	template, err := template(leaf, leafLife)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", leaf.Name, err)
	}
	return encode(der, key)
}

// SignTo makes a certificate and writes it as name.crt and name.key by way of path.
func (a *Authority) SignTo(leaf Leaf, certFile, keyFile string) error {
	pair, err := a.Sign(leaf)
	if err != nil {
		return err
	}
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return err
	}
	return layout.WriteFile(certFile, pair.Cert, 0o644)
}

func template(leaf Leaf, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number for %s: %w", leaf.Name, err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: leaf.Name, Organization: leaf.Groups},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	if len(leaf.Hosts) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return t, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
