// Package nodecert holds the rules of the certificates that virt-handlers serve
// with, and call each other with in a migration: one key for each node, which never
// leaves virt-handler's memory, and a certificate that names the node and is good for
// nothing else. Only virt-api and other virt-handlers trust its authority (decision 292).
//
// virt-handler asks for it by a CertificateSigningRequest (New); the API server
// notes in it who asks, and on which node the token of the asking pod is bound.
// virt-api judges the request (Judge) and signs it (Authority); virt-handler decides
// by Decide what it does next.
//
//	field of the request        who writes it
//	metadata, spec              virt-handler of the node that the name ends with
//	spec.username, spec.extra   the API server, from the token
//	status.conditions           virt-api: Approved, Denied or Failed
//	status.certificate          virt-api, only after Approved
//	deletion                    virt-handler, once it has taken the certificate; else
//	                            kube-controller-manager, after an hour
//
// A node has one request at a time, by its name. After a crash the next
// process recognizes the request by its key and by its conditions:
//
//	virt-handler, after it asked   its successor has another key, deletes the
//	                               request and asks anew
//	virt-api, after it approved    a request that is approved is judged again and signed
//	two virt-apis at once          the version of the request lets one write succeed
//
// The package must not import a client, and must not know where keys are kept.
package nodecert

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// SignerName is the signer that virt-api is.
const SignerName = "drydock.dev/virt-handler"

// requestPrefix begins the names of requests. The policy
// virt-handler-certificates allows no other name.
const requestPrefix = "drydock-virt-handler-"

// Account is the user that virt-handler is to the API server.
const Account = "system:serviceaccount:" + clusterconfig.Namespace + ":" + clusterconfig.HandlerServiceAccount

// What the API server says of a token that is bound to a pod.
const (
	nodeNameExtra = "authentication.kubernetes.io/node-name"
	podUIDExtra   = "authentication.kubernetes.io/pod-uid"
)

const (
	// Lifetime of a certificate. It is renewed when half of it is over, so a node
	// costs a request a day, and a day without a signer costs nothing.
	Lifetime = 48 * time.Hour
	// servingLifetime is how long a certificate that serves only is taken to be good, so
	// that one for both usages is asked for soon: virt-api is being upgraded.
	servingLifetime = 20 * time.Minute
	// skew between the clocks of the nodes.
	skew = time.Hour
)

// suffix follows the node's name in the name of its certificate.
const suffix = ".virt-handler." + clusterconfig.Namespace + ".svc"

// DNSName is the only name in the certificate of a node's virt-handler. No DNS
// server knows it.
func DNSName(node string) string { return node + suffix }

// NodeOf is the node whose DNSName it is.
func NodeOf(dnsName string) (node string, ok bool) {
	node, ok = strings.CutSuffix(dnsName, suffix)
	return node, ok && node != ""
}

// Holder is the node whose virt-handler a certificate is for. That the certificate is
// of the right authority must have been verified.
func Holder(certificate *x509.Certificate) (node string, err error) {
	if len(certificate.DNSNames) != 1 {
		return "", fmt.Errorf("the certificate has %d names; that of a virt-handler has one", len(certificate.DNSNames))
	}
	node, ok := NodeOf(certificate.DNSNames[0])
	if !ok {
		return "", fmt.Errorf("the certificate is for %.300q, which is no virt-handler's name", certificate.DNSNames[0])
	}
	return node, nil
}

// Calls reports whether a virt-handler can call others with the certificate.
func Calls(certificate *x509.Certificate) bool {
	return slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
}

// RequestName is the name of the node's CertificateSigningRequest.
func RequestName(node string) string { return requestPrefix + node }
