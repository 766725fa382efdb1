package pki

import (
	"crypto/tls"
	"fmt"

	certutil "k8s.io/client-go/util/cert"

	"drydock.dev/local/internal/layout"
)

// APIServerClient is an administrator's side of a connection to a server whose
// certificate the cluster's authority has signed. It reads the files of the moment.
func APIServerClient(c layout.Cluster) (*tls.Config, error) {
	return clientTLS(c, "apiserver-kubelet-client", clusterCA)
}

// EtcdClient is the API server's own connection to etcd.
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
