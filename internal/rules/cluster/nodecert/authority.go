package nodecert

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Authority signs only the certificates of virt-handlers.
type Authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
}

// NewAuthority parses an authority's certificate and key.
func NewAuthority(cert, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of virt-handlers: %w", err)
	}
	return &Authority{cert: pair.Leaf, key: pair.PrivateKey}, nil
}

// PublishedIn reports whether the bundle contains the authority, so that its clients trust what it signs.
func (a *Authority) PublishedIn(bundle []byte) bool {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if bytes.Equal(block.Bytes, a.cert.Raw) {
			return true
		}
	}
	return false
}

// Sign returns a grant's certificate as PEM. It does not outlive the authority.
func (a *Authority) Sign(grant Grant, now time.Time) ([]byte, error) {
	failed := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("signing the certificate of the virt-handler on node %s: %w", grant.Node, err)
	}
	if grant.key == nil {
		return failed(errors.New("nothing was granted"))
	}
	end := now.Add(grant.lifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	if !now.Before(end) {
		return failed(errors.New("the authority has expired"))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return failed(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		DNSNames:              []string{DNSName(grant.Node)},
		NotBefore:             now.Add(-skew),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           grant.usages.extended(),
		BasicConstraintsValid: true,
	}, a.cert, grant.key, a.key)
	if err != nil {
		return failed(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func single(text []byte) ([]byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("it is not one PEM certificate")
	}
	return block.Bytes, nil
}
