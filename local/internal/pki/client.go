package pki

import (
	"crypto/tls"
	"fmt"

	certutil "k8s.io/client-go/util/cert"

	"drydock.dev/local/internal/layout"
)

// APIServerClient returns an administrator's TLS configuration for servers whose certificates the
// cluster's authority has signed, from the current files.
func APIServerClient(c layout.Cluster) (*tls.Config, error) {
	return clientTLS(c, "apiserver-kubelet-client", clusterCA)
}

// EtcdClient returns the API server's TLS configuration for etcd.
func EtcdClient(c layout.Cluster) (*tls.Config, error) {
	return clientTLS(c, "apiserver-etcd-client", etcdCA)
}

func clientTLS(c layout.Cluster, name, authority string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.PKI(name+".crt"), c.PKI(name+".key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s: %w", name, err)
	}
	pool, err := certutil.NewPool(c.PKI(authority + ".crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority %s: %w", authority, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
