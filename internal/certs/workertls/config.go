package workertls

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
)

// The kubelet updates the files of dir when virt-controller has issued a new certificate.
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

// Name returns the name in the certificate in dir.
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

// ServerConfig returns a server's configuration that reads the files in dir at each handshake. Clients must have a
// certificate of the same authority.
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

// ClientConfig returns a client's configuration from the files in dir. The server's certificate must have the name.
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
