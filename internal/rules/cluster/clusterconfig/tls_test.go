package clusterconfig

import (
	"crypto/tls"
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhatServersAccept(t *testing.T) {
	const suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
	for name, test := range map[string]struct {
		set     *v1.TLSConfiguration
		version uint16
		ciphers []uint16
	}{
		"nothing said":              {nil, tls.VersionTLS12, nil},
		"an older version":          {&v1.TLSConfiguration{MinTLSVersion: v1.VersionTLS10}, tls.VersionTLS12, nil},
		"the newest version":        {&v1.TLSConfiguration{MinTLSVersion: v1.VersionTLS13}, tls.VersionTLS13, nil},
		"a cipher, and one unknown": {&v1.TLSConfiguration{Ciphers: []string{suite, "NULL"}}, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
	} {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.TLSConfiguration = test.set
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		FromKubeVirt(kv).TLS.Restrict(config)
		if config.MinVersion != test.version || !slices.Equal(config.CipherSuites, test.ciphers) {
			t.Errorf("%s: version %x and ciphers %v", name, config.MinVersion, config.CipherSuites)
		}
	}
	if _, err := Cipher("TLS_RSA_WITH_RC4_128_SHA"); err == nil {
		t.Error("a cipher that is not safe is known")
	}
}

// A server with ciphers of its own must keep them if none are configured.
func TestAServerKeepsItsCiphers(t *testing.T) {
	own := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	config := &tls.Config{CipherSuites: own}
	TLS{}.Restrict(config)
	if !slices.Equal(config.CipherSuites, own) {
		t.Errorf("the ciphers are %v", config.CipherSuites)
	}
}
