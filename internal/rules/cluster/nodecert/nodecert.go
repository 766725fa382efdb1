// Package nodecert holds the rules of the certificates with which virt-handlers serve and call each other in a
// migration: one key for each node, which never leaves virt-handler's memory, and a certificate that names the node and
// is valid for nothing else. Only virt-api and other virt-handlers trust its authority (decision 234).
//
// virt-handler requests it by a CertificateSigningRequest (New), in which the API server notes the requester and the
// node to which the requesting pod's token is bound. virt-api judges the request (Judge) and signs it (Authority).
// Decide returns virt-handler's next step.
//
//	field of the request        written by
//	metadata, spec              virt-handler of the node that the name ends with
//	spec.username, spec.extra   the API server, from the token
//	status.conditions           virt-api: Approved, Denied or Failed
//	status.certificate          virt-api, only after Approved
//	deletion                    virt-handler, after it has read the certificate; otherwise
//	                            kube-controller-manager, after an hour
//
// A node has one request at a time, by its name. After a crash the next process knows it by its key and its conditions:
//
//	virt-handler, after its request   its successor has another key, and replaces the request
//	virt-api, after its approval      an approved request is judged again and signed
//	two virt-apis at once             the request's version lets one write succeed
//
// The package must not import a client, and must not know where keys are kept.
package nodecert

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// SignerName is the signer name of virt-api.
const SignerName = "drydock.dev/virt-handler"

// The policy virt-handler-certificates allows no other prefix.
const requestPrefix = "drydock-virt-handler-"

// Account is virt-handler's user name.
const Account = "system:serviceaccount:" + clusterconfig.Namespace + ":" + clusterconfig.HandlerServiceAccount

// The API server's extra fields for a token that is bound to a pod.
const (
	nodeNameExtra = "authentication.kubernetes.io/node-name"
	podUIDExtra   = "authentication.kubernetes.io/pod-uid"
)

const (
	// Lifetime of a certificate. It is renewed after half of that: a day without a signer does no harm.
	Lifetime = 48 * time.Hour
	// servingLifetime replaces the lifetime of a certificate for serving only, which occurs while virt-api is being
	// upgraded: one for both usages is soon requested.
	servingLifetime = 20 * time.Minute
	// skew is the tolerated difference between the nodes' clocks.
	skew = time.Hour
)

const suffix = ".virt-handler." + clusterconfig.Namespace + ".svc"

// DNSName returns the only name in the certificate of a node's virt-handler. No DNS server knows it.
func DNSName(node string) string { return node + suffix }

// NodeOf returns the node of a DNSName.
func NodeOf(dnsName string) (node string, ok bool) {
	node, ok = strings.CutSuffix(dnsName, suffix)
	return node, ok && node != ""
}

// Holder returns the node whose virt-handler holds the certificate. The caller must have verified its authority.
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

// RequestName returns the name of a node's request.
func RequestName(node string) string { return requestPrefix + node }
