// Package pki makes the cluster's certificates and the kubeconfigs that refer to
// them. Authorities are made once and kept for as long as they can be used; what
// they sign is renewed before it expires, at `up` and while the cluster runs. The
// package writes files only: whoever must read them again is the supervisor's work.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	"drydock.dev/local/internal/layout"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// skew forgives clocks that were set back after a certificate was made.
	skew = time.Hour
	// leafMargin is when a certificate is renewed: a month, in which a machine may be off.
	leafMargin = 30 * 24 * time.Hour
	// authorityMargin is when `up` makes an authority anew. It is long, because a
	// cluster that runs only warns of it.
	authorityMargin = 90 * 24 * time.Hour
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

// unusable says why an authority can't be used any longer; it is nil for one that can.
func (a *Authority) unusable(now time.Time) error {
	switch pub, ok := a.key.Public().(*ecdsa.PublicKey); {
	case !ok || !pub.Equal(a.cert.PublicKey):
		return errors.New("its key belongs to another certificate")
	case now.Before(a.cert.NotBefore):
		return fmt.Errorf("it is valid from %s only: the clock was wrong when it was made, or is now", a.cert.NotBefore.Format(time.RFC3339))
	case now.After(a.cert.NotAfter):
		return fmt.Errorf("it expired at %s", a.cert.NotAfter.Format(time.RFC3339))
	case a.cert.NotAfter.Sub(now) < authorityMargin:
		return fmt.Errorf("it expires at %s", a.cert.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// stale says why a certificate has to be made anew; it is nil for one that is good.
func (a *Authority) stale(pair Pair, leaf Leaf, now time.Time) error {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	cert := both.Leaf
	want, err := a.template(leaf, now)
	if err != nil {
		return err
	}
	switch {
	case cert.CheckSignatureFrom(a.cert) != nil:
		return errors.New("another authority has signed it")
	case cert.Subject.String() != want.Subject.String(), !slices.Equal(cert.DNSNames, want.DNSNames),
		!slices.EqualFunc(cert.IPAddresses, want.IPAddresses, net.IP.Equal):
		return errors.New("it is for another name")
	case now.Before(cert.NotBefore):
		return errors.New("it is not valid yet")
	case cert.NotAfter.Sub(now) < leafMargin && cert.NotAfter.Before(want.NotAfter.Truncate(time.Second)):
		return errors.New("it expires soon")
	}
	return nil
}

// load reads an authority from two files. It returns nil when there is none.
func load(name, certFile, keyFile string) (*Authority, error) {
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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

// newAuthority makes an authority and writes it into two files.
func newAuthority(name, certFile, keyFile string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority %s: %w", name, err)
	}
	template, err := template(Leaf{Name: name}, now, now.Add(authorityLife))
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
	// The key goes first: a certificate on disk means that its key is there. Who
	// finds an old certificate beside a new key makes both anew.
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return nil, err
	}
	if err := layout.WriteFile(certFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	return load(name, certFile, keyFile)
}

// sign makes a certificate.
func (a *Authority) sign(leaf Leaf, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key for %s: %w", leaf.Name, err)
	}
	template, err := a.template(leaf, now)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", leaf.Name, err)
	}
	return encode(der, key)
}

// ensure writes a certificate and its key anew unless those in the files are good.
func (a *Authority) ensure(leaf Leaf, certFile, keyFile string, now time.Time) (renewed bool, err error) {
	old, err := readPair(certFile, keyFile)
	if err != nil {
		return false, err
	}
	if a.stale(old, leaf, now) == nil {
		return false, nil
	}
	pair, err := a.sign(leaf, now)
	if err != nil {
		return false, err
	}
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return false, err
	}
	return true, layout.WriteFile(certFile, pair.Cert, 0o644)
}

// readPair reads what is there: files that are missing are empty.
func readPair(certFile, keyFile string) (Pair, error) {
	cert, certErr := os.ReadFile(certFile)
	key, keyErr := os.ReadFile(keyFile)
	for _, err := range []error{certErr, keyErr} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Pair{}, fmt.Errorf("reading a certificate: %w", err)
		}
	}
	return Pair{Cert: cert, Key: key}, nil
}

// template is a certificate that does not outlive its authority.
func (a *Authority) template(leaf Leaf, now time.Time) (*x509.Certificate, error) {
	until := now.Add(leafLife)
	if a.cert.NotAfter.Before(until) {
		until = a.cert.NotAfter
	}
	return template(leaf, now, until)
}

func template(leaf Leaf, now, until time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number for %s: %w", leaf.Name, err)
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: leaf.Name, Organization: leaf.Groups},
		NotBefore:    now.Add(-skew),
		NotAfter:     until,
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
