package workertls

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
)

// read takes the files of dir, which the kubelet changes when virt-controller
// has made a new certificate.
func read(dir string) (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, file := range []string{CertFile, KeyFile, AuthorityFile} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("reading the worker's certificate: %w", err)
		}
		data[file] = text
	}
	return data, nil
}

// Name is what the certificate in dir says.
func Name(dir string) (string, error) {
	data, err := read(dir)
	if err != nil {
		return "", err
	}
	pair, _, err := own(data)
	if err != nil {
		return "", err
	}
	return pair.Leaf.DNSNames[0], nil
}

// ServerConfig serves with the files in dir, as they are at each handshake.
// Clients must show a certificate of the same authority; what they may do is to
// be asked of Caller.
func ServerConfig(dir string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			data, err := read(dir)
			if err != nil {
				return nil, err
			}
			pair, trust, err := own(data)
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS12,
				Certificates: []tls.Certificate{*pair},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    trust,
				NextProtos:   []string{"http/1.1"},
			}, nil
		},
	}
}

// ClientConfig calls with the files in dir a server that must be called name.
func ClientConfig(dir, name string) (*tls.Config, error) {
	data, err := read(dir)
	if err != nil {
		return nil, err
	}
	pair, trust, err := own(data)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*pair},
		RootCAs:      trust,
		ServerName:   name,
	}, nil
}
