package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// PeerServerConfig returns the configuration of a server whose clients' certificates have the same authorities as the
// holder's (Identity.OwnKey). The caller identifies the client from the connection's state. Both sides must use protocol
// (ALPN). Every connection is verified; none is resumed.
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
				// Transfers are long, and small records at the beginning would not help.
				DynamicRecordSizingDisabled: true,
			}, nil
		},
	}
}

// PeerClientConfig returns the configuration for calling the named server of PeerServerConfig.
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
		// The reason is that of ClientConfigFor.
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

// calls returns an error if a certificate is not valid for a client.
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
