// Package workertls owns the certificates between the workers that fill claims and their senders: their names, how
// virt-controller signs (Authority), and how a worker serves and calls with the files of its pod. The worker links it,
// so it must import only the standard library. It must not know where the authority is stored (certs.UploadSecret).
//
//	certificate of             name                          usage   signed by
//	virt-api's upload proxy    ProxyName                     client  certs (cert-controller)
//	worker, kind upload        ServerName(claim, namespace)  server  virt-controller
//	worker, kind clone-source  SourceName(claim, namespace)  client  virt-controller
//
// All have the same authority, which signs nothing else. The owner of a namespace can read its workers' keys, which only
// allow receiving an upload into that claim, and sending a clone into it.
package workertls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// The files of transfer.TLSDir and entries of the Secret mounted there.
const (
	CertFile      = "tls.crt"
	KeyFile       = "tls.key"
	AuthorityFile = "ca.crt"
	// authorityKey is only in the authority's own Secret.
	authorityKey = "ca.key"
)

// ProxyName is the name in the upload proxy's certificate.
const ProxyName = "upload-proxy.kubevirt.svc"

const (
	// virt-controller renews certificates long before. The namespace's owner can read the key in a Secret.
	lifetime = 30 * 24 * time.Hour
	// skew allows for the nodes' clocks.
	skew = time.Hour
)

// ServerName names the worker that fills the claim, and is the DNS name of its Service.
func ServerName(claim, namespace string) string {
	return transfer.UploadName(claim) + "." + namespace + ".svc"
}

// SourceName names the worker that sends a clone into the claim.
func SourceName(claim, namespace string) string {
	return sourceOf(ServerName(claim, namespace))
}

// sourceOf returns the only client from which a server accepts a clone.
func sourceOf(server string) string { return "source." + server }

// Authority signs workers' certificates.
type Authority struct {
	cert *x509.Certificate
	key  any
	pem  []byte
}

// NewAuthority reads the authority from its Secret's data.
func NewAuthority(data map[string][]byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(data[AuthorityFile], data[authorityKey])
	if err != nil {
		return nil, fmt.Errorf("reading the authority of workers' certificates: %w", err)
	}
	return &Authority{cert: pair.Leaf, key: pair.PrivateKey, pem: data[AuthorityFile]}, nil
}

// Server returns the Secret for a worker that serves under name.
func (a *Authority) Server(name string, now time.Time) (map[string][]byte, error) {
	return a.sign(name, x509.ExtKeyUsageServerAuth, now)
}

// Client returns the Secret for a worker that calls under name.
func (a *Authority) Client(name string, now time.Time) (map[string][]byte, error) {
	return a.sign(name, x509.ExtKeyUsageClientAuth, now)
}

func (a *Authority) sign(name string, usage x509.ExtKeyUsage, now time.Time) (map[string][]byte, error) {
	failed := func(err error) (map[string][]byte, error) {
		return nil, fmt.Errorf("making a certificate for %s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return failed(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return failed(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// The name may be too long for a common name; only DNSNames is verified.
		Subject:               pkix.Name{CommonName: "drydock-worker"},
		DNSNames:              []string{name},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return failed(err)
	}
	keyText, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return failed(err)
	}
	return map[string][]byte{
		CertFile:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		KeyFile:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyText}),
		AuthorityFile: a.pem,
	}, nil
}

// Certificate returns the authority's own certificate as PEM.
func (a *Authority) Certificate() []byte { return a.pem }

// Role is a client's role at a worker.
type Role int

// These are the roles of clients.
const (
	Unknown Role = iota
	// Proxy sends a user's upload.
	Proxy
	// Source sends a clone.
	Source
)

// Caller returns the role of the client of a connection with ServerConfig.
func Caller(state *tls.ConnectionState, server string) Role {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Unknown
	}
	for _, name := range state.PeerCertificates[0].DNSNames {
		switch name {
		case ProxyName:
			return Proxy
		case sourceOf(server):
			return Source
		}
	}
	return Unknown
}

func own(data map[string][]byte) (*tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.X509KeyPair(data[CertFile], data[KeyFile])
	if err != nil {
		return nil, nil, fmt.Errorf("reading the worker's certificate: %w", err)
	}
	if len(pair.Leaf.DNSNames) == 0 {
		return nil, nil, errors.New("the worker's certificate says no name")
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(data[AuthorityFile]) {
		return nil, nil, errors.New("no authority to know callers by")
	}
	return &pair, trust, nil
}
