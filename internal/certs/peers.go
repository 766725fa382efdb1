package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// PeerServerConfig is for a server whose clients have certificates of the same
// authorities as the holder (Identity.OwnKey): they are verified, and which of them it is
// is for the caller to ask of the connection's state. protocol is the one that both sides
// must speak (ALPN). Every connection is verified anew; none is resumed.
func (s *Source) PeerServerConfig(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			pair, authorities, err := s.peer()
			if err != nil {
				return nil, err
			}
			if !slices.Contains(hello.SupportedProtos, protocol) {
				return nil, fmt.Errorf("the client does not speak %s", protocol)
			}
			return &tls.Config{
				MinVersion:             tls.VersionTLS13,
				Certificates:           []tls.Certificate{*pair},
				NextProtos:             []string{protocol},
				ClientAuth:             tls.RequireAndVerifyClientCert,
				ClientCAs:              authorities,
				SessionTicketsDisabled: true,
				// What goes through is long: small records at the beginning gain nothing.
				DynamicRecordSizingDisabled: true,
			}, nil
		},
	}
}

// PeerClientConfig calls the server of that name, which has a certificate of the same
// authorities as the holder (PeerServerConfig).
func (s *Source) PeerClientConfig(server, protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: server,
		NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, _, err := s.peer()
			if err != nil {
				return nil, err
			}
			return pair, calls(pair)
		},
		DynamicRecordSizingDisabled: true,
		// As in ClientConfigFor.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, authorities, err := s.peer()
			if err != nil {
				return err
			}
			return verifyServer(state, authorities)
		},
	}
}

// peer is what the holder shows to its like, and knows them by.
func (s *Source) peer() (*tls.Certificate, *x509.CertPool, error) {
	pair, authorities := s.pair.Load(), s.own.Load()
	switch {
	case pair == nil:
		return nil, nil, errors.New("no certificate yet")
	case authorities == nil:
		return nil, nil, fmt.Errorf("no authority %s in ConfigMap %s/%s yet", s.identity.OwnKey, clusterconfig.Namespace, TrustConfigMap)
	}
	return pair.tls, authorities, nil
}

// calls returns an error when a certificate can't be shown by a client.
func calls(pair *tls.Certificate) error {
	leaf := pair.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("reading the holder's own certificate: %w", err)
		}
	}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return errors.New("the certificate in use is for serving only; a virt-api of this version must sign another")
	}
	return nil
}
