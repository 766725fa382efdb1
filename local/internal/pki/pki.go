// Package pki creates the cluster's certificates and kubeconfigs. It keeps usable authorities, and renews other
// certificates before they expire. It must only write files: the supervisor makes components read them again.
package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"drydock.dev/local/internal/layout"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// skew allows for clocks that were set back after a certificate was created.
	skew = time.Hour
	// leafMargin is the remaining lifetime at which a certificate is renewed: a month, for which a
	// machine may be off.
	leafMargin = 30 * 24 * time.Hour
	// authorityMargin is the remaining lifetime at which `up` replaces an authority. It is long,
	// because a running cluster only warns.
	authorityMargin = 90 * 24 * time.Hour
	algorithm       = kubeadmapi.EncryptionAlgorithmECDSAP256
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Leaf is the specification of a certificate.
type Leaf struct {
	Name   string
	Groups []string
	// Hosts are DNS names and addresses. A leaf with hosts is valid for servers; every leaf is
	// valid for clients.
	Hosts []string
}

// Pair is a certificate and its key.
type Pair struct{ Cert, Key []byte }

// unusable returns the reason why an authority must be replaced, nil if it is usable.
func (a *Authority) unusable(now time.Time) error {
	switch {
	case !fits(a.key, a.cert):
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

func fits(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// stale returns the reason why a certificate must be replaced, nil if it is good.
func (a *Authority) stale(pair Pair, leaf Leaf, now time.Time) error {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	cert := both.Leaf
	want := a.config(leaf, now)
	subject := pkix.Name{CommonName: want.CommonName, Organization: want.Organization}
	switch {
	case cert.CheckSignatureFrom(a.cert) != nil:
		return errors.New("another authority has signed it")
	case cert.Subject.String() != subject.String(), !slices.Equal(hosts(cert.DNSNames, cert.IPAddresses), hosts(want.AltNames.DNSNames, want.AltNames.IPs)):
		return errors.New("it is for another name")
	case now.Before(cert.NotBefore):
		return errors.New("it is not valid yet")
	case cert.NotAfter.Sub(now) < leafMargin && cert.NotAfter.Before(want.NotAfter.Truncate(time.Second)):
		return errors.New("it expires soon")
	}
	return nil
}

func hosts(names []string, ips []net.IP) []string {
	all := slices.Clone(names)
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	slices.Sort(all)
	return all
}

// load reads an authority from its files. It returns nil if there is none.
func load(name, certFile, keyFile string) (*Authority, error) {
	certs, err := certutil.CertsFromFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the authority %s: %w", name, err)
	}
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the authority %s: %w", name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("reading the key of the authority %s: %s has a key that can't sign", name, keyFile)
	}
	return &Authority{cert: certs[0], key: signer}, nil
}

func newAuthority(name, certFile, keyFile string, now time.Time) (*Authority, error) {
	cert, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{
		Config:   certutil.Config{CommonName: name, NotBefore: now.Add(-skew)},
		NotAfter: now.Add(authorityLife), EncryptionAlgorithm: algorithm,
	})
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	pair, err := encode(cert, key)
	if err != nil {
		return nil, err
	}
	// The key is written first: a certificate on disk implies its key. An old certificate beside a new key gets
	// both replaced.
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return nil, err
	}
	if err := layout.WriteFile(certFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	return load(name, certFile, keyFile)
}

// ensure replaces a certificate and its key unless they are good.
func (a *Authority) ensure(leaf Leaf, certFile, keyFile string, now time.Time) (renewed bool, err error) {
	old, err := readPair(certFile, keyFile)
	if err != nil {
		return false, err
	}
	if a.stale(old, leaf, now) == nil {
		return false, nil
	}
	config := a.config(leaf, now)
	cert, key, err := pkiutil.NewCertAndKey(a.cert, a.key, &config)
	if err != nil {
		return false, fmt.Errorf("making the certificate of %s: %w", leaf.Name, err)
	}
	pair, err := encode(cert, key)
	if err != nil {
		return false, err
	}
	if err := layout.WriteFile(keyFile, pair.Key, 0o600); err != nil {
		return false, err
	}
	return true, layout.WriteFile(certFile, pair.Cert, 0o644)
}

// A missing file counts as empty.
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

// The certificate does not outlive its authority.
func (a *Authority) config(leaf Leaf, now time.Time) pkiutil.CertConfig {
	c := pkiutil.CertConfig{
		Config: certutil.Config{
			CommonName: leaf.Name, Organization: leaf.Groups, NotBefore: now.Add(-skew),
			Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
		NotAfter: now.Add(leafLife), EncryptionAlgorithm: algorithm,
	}
	if a.cert.NotAfter.Before(c.NotAfter) {
		c.NotAfter = a.cert.NotAfter
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.AltNames.IPs = append(c.AltNames.IPs, ip)
		} else {
			c.AltNames.DNSNames = append(c.AltNames.DNSNames, host)
		}
	}
	if len(leaf.Hosts) > 0 {
		c.Usages = append(c.Usages, x509.ExtKeyUsageServerAuth)
	}
	return c
}

func encode(cert *x509.Certificate, key crypto.Signer) (Pair, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding the key of %s: %w", cert.Subject.CommonName, err)
	}
	return Pair{Cert: pkiutil.EncodeCertPEM(cert), Key: keyPEM}, nil
}
