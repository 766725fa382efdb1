package clusterconfig

import (
	"crypto/tls"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// TLS is what a server accepts. The zero value leaves it to the server.
type TLS struct {
	MinVersion uint16
	// Ciphers are those of versions before 1.3; nil leaves them to Go.
	Ciphers []uint16
}

var tlsVersions = map[v1.TLSProtocolVersion]uint16{
	v1.VersionTLS10: tls.VersionTLS10, v1.VersionTLS11: tls.VersionTLS11, v1.VersionTLS12: tls.VersionTLS12, v1.VersionTLS13: tls.VersionTLS13,
}

// Cipher is the cipher of a name, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Only those are found that are safe.
func Cipher(name string) (uint16, error) {
	for _, suite := range tls.CipherSuites() {
		if suite.Name == name {
			return suite.ID, nil
		}
	}
	return 0, fmt.Errorf("%q is none of the ciphers that Go knows as safe", name)
}

// tlsOf reads what servers accept. No version before 1.2 is served, whatever is asked for; ciphers that are not known, which
// admission would have refused, are left out.
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

// Restrict makes a server accept only that.
func (t TLS) Restrict(config *tls.Config) {
	if t.MinVersion > config.MinVersion {
		config.MinVersion = t.MinVersion
	}
	if len(t.Ciphers) > 0 {
		config.CipherSuites = t.Ciphers
	}
}
