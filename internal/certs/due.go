package certs

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"time"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// renewal is what is made anew.
type renewal int

// Renewals. A new authority brings a new certificate with it.
const (
	renewNothing renewal = iota
	renewCertificate
	renewAuthority
)

const (
	// backdated is how long before they are made certificates are good, for clocks that differ.
	backdated = time.Hour
	// settling is how long a certificate is left that would be good for longer than is asked for: while an earlier virt-api
	// runs, which makes such ones, the two must not take turns.
	settling = 10 * time.Minute
)

// issuance is what a Secret holds.
type issuance struct {
	authority, certificate *x509.Certificate
	authorityKey           *rsa.PrivateKey
}

// issuanceOf reads a Secret's data; false if it can't be used, which is for the rotator to mend.
func issuanceOf(data map[string][]byte, certEntry, keyEntry string) (issuance, bool) {
	authority, err := tls.X509KeyPair(data[AuthorityEntry], data[AuthorityKeyEntry])
	if err != nil {
		return issuance{}, false
	}
	key, known := authority.PrivateKey.(*rsa.PrivateKey)
	pair, err := tls.X509KeyPair(data[certEntry], data[keyEntry])
	if !known || err != nil || pair.Leaf.CheckSignatureFrom(authority.Leaf) != nil {
		return issuance{}, false
	}
	return issuance{authority: authority.Leaf, certificate: pair.Leaf, authorityKey: key}, true
}

// due returns what of a Secret is to be made anew now; if nothing is, when it will be.
//
// A certificate that ends with its authority is renewed with it. One that is made now is not due at once, whatever is
// asked for that passes clusterconfig.CertificatesOf, so that renewing comes to an end.
func due(is issuance, want clusterconfig.Certificates, now time.Time) (renewal, time.Time) {
	authority := dueAt(is.authority, want.Authority, now)
	if !now.Before(authority) {
		return renewAuthority, time.Time{}
	}
	next := dueAt(is.certificate, want.Certificate, now)
	if !is.certificate.NotAfter.Before(is.authority.NotAfter) && !tooLong(is.certificate, want.Certificate, now) {
		next = authority
	}
	if !now.Before(next) {
		return renewCertificate, time.Time{}
	}
	if authority.Before(next) {
		next = authority
	}
	return renewNothing, next
}

// dueAt is when a certificate is made anew.
func dueAt(cert *x509.Certificate, want clusterconfig.Lifetime, now time.Time) time.Time {
	if tooLong(cert, want, now) {
		return cert.NotBefore.Add(backdated + settling)
	}
	return cert.NotAfter.Add(-want.RenewBefore)
}

// tooLong reports whether a certificate is good for much longer than one that is made now.
func tooLong(cert *x509.Certificate, want clusterconfig.Lifetime, now time.Time) bool {
	return cert.NotAfter.After(now.Add(want.Duration + want.Duration/10))
}
