package clusterconfig

import (
	"crypto/tls"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// TLS restricts the connections that a server accepts. The zero value restricts nothing.
type TLS struct {
	MinVersion uint16
	// Ciphers apply to versions before 1.3; nil leaves the choice to Go.
	Ciphers []uint16
}

var tlsVersions = map[v1.TLSProtocolVersion]uint16{
	v1.VersionTLS10: tls.VersionTLS10, v1.VersionTLS11: tls.VersionTLS11, v1.VersionTLS12: tls.VersionTLS12, v1.VersionTLS13: tls.VersionTLS13,
}

// Cipher returns the safe cipher suite with a name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func Cipher(name string) (uint16, error) {
	for _, suite := range tls.CipherSuites() {
		if suite.Name == name {
			return suite.ID, nil
		}
	}
	return 0, fmt.Errorf("%q is none of the ciphers that Go knows as safe", name)
}

// tlsOf permits no version before 1.2, and ignores unknown ciphers, which admission refuses.
func tlsOf(set *v1.TLSConfiguration) TLS {
	if set == nil {
		return TLS{}
	}
	var t TLS
	if version := tlsVersions[set.MinTLSVersion]; version > tls.VersionTLS12 {
		t.MinVersion = version
	}
	for _, name := range set.Ciphers {
		if id, err := Cipher(name); err == nil {
			t.Ciphers = append(t.Ciphers, id)
		}
	}
	return t
}

// Restrict applies the restrictions to a server's configuration.
func (t TLS) Restrict(config *tls.Config) {
	if t.MinVersion > config.MinVersion {
		config.MinVersion = t.MinVersion
	}
	if len(t.Ciphers) > 0 {
		config.CipherSuites = t.Ciphers
	}
}
