package certs

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"time"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// renewal is the part of a Secret that is renewed.
type renewal int

// A new authority implies a new certificate.
const (
	renewNothing renewal = iota
	renewCertificate
	renewAuthority
)

const (
	// backdated is how long before its creation a certificate becomes valid, for clocks that differ.
	backdated = time.Hour
	// settling is how long a certificate is kept that is valid for longer than configured: while an earlier virt-api
	// issues such ones, the two must not replace each other's.
	settling = 10 * time.Minute
)

type issuance struct {
	authority, certificate *x509.Certificate
	authorityKey           *rsa.PrivateKey
}

// issuanceOf reports false for unusable data, which the rotator repairs.
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

// due returns which part of a Secret must be renewed now, or when the next renewal is due. A certificate that expires
// with its authority is renewed with it. One that was just issued is never due, for any lifetimes that
// clusterconfig.CertificatesOf accepts, so that renewing comes to an end.
func due(is issuance, want clusterconfig.Certificates, now time.Time) (renewal, time.Time) {
	authority, next := dueTimes(is, want, now)
	if !now.Before(authority) {
		return renewAuthority, time.Time{}
	}
	if !now.Before(next) {
		return renewCertificate, time.Time{}
	}
	if authority.Before(next) {
		next = authority
	}
	return renewNothing, next
}

// dueTimes returns when an authority and its certificate are due.
func dueTimes(is issuance, want clusterconfig.Certificates, now time.Time) (authority, certificate time.Time) {
	authority, certificate = dueAt(is.authority, want.Authority, now), dueAt(is.certificate, want.Certificate, now)
	if !is.certificate.NotAfter.Before(is.authority.NotAfter) && !tooLong(is.certificate, want.Certificate, now) {
		certificate = authority
	}
	return authority, certificate
}

func dueAt(cert *x509.Certificate, want clusterconfig.Lifetime, now time.Time) time.Time {
	if tooLong(cert, want, now) {
		return cert.NotBefore.Add(backdated + settling)
	}
	return cert.NotAfter.Add(-want.RenewBefore)
}

// tooLong reports whether a certificate is valid for much longer than a new one would be.
func tooLong(cert *x509.Certificate, want clusterconfig.Lifetime, now time.Time) bool {
	return cert.NotAfter.After(now.Add(want.Duration + want.Duration/10))
}
