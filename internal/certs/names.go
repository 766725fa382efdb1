// Package certs owns the certificates of Drydock's components: cert-controller issues and rotates them (Add), a
// ConfigMap publishes the authorities that peers trust, and a Source watches both through the API, so that a rotation
// needs no restart. Only the metrics' certificate is mounted: virt-handler, which serves it, too, may read no Secret.
// The package must not know the use of a certificate.
//
//	Secret                              holder        who trusts its authority
//	kubevirt-virt-api-certs             virt-api      kube-apiserver (caBundle of the APIServices)
//	kubevirt-virt-handler-ca            virt-api      virt-api and virt-handlers, of virt-handlers
//	kubevirt-virt-handler-client-certs  virt-api      virt-handler
//	kubevirt-upload-certs               virt-api      workers that take uploads and clones
//	kubevirt-metrics-certs              all           Prometheus, of all components
//
// A virt-handler has a key and a certificate only for its node, in no Secret; the authority in kubevirt-virt-handler-ca
// signs it (nodecert, nodekey, nodesigner). The authority in kubevirt-upload-certs also signs the workers' own
// certificates, for which virt-controller reads it (workertls.Authority).
//
// Each Secret has its own authority, so that nobody can impersonate virt-api with the stolen key of a node. The
// ConfigMap kubevirt-ca has their certificates without keys. No component reads another's Secret.
package certs

import (
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// The Secrets and the ConfigMap are in clusterconfig.Namespace.
const (
	APISecret              = "kubevirt-virt-api-certs"
	HandlerAuthoritySecret = "kubevirt-virt-handler-ca"
	HandlerClientSecret    = "kubevirt-virt-handler-client-certs"
	UploadSecret           = "kubevirt-upload-certs"
	MetricsSecret          = "kubevirt-metrics-certs"
	TrustConfigMap         = "kubevirt-ca"
)

// UploadProxyService is the Service of virt-api's upload proxy.
const UploadProxyService = "cdi-uploadproxy"

// MetricsName is the name in the metrics' certificate: that of the Service.
const MetricsName = "kubevirt-prometheus-metrics." + clusterconfig.Namespace + ".svc"

// Identity names a certificate and the authorities that its holder trusts.
type Identity struct {
	// Secret has tls.crt and tls.key. It is empty if the holder's key is in no Secret (Use).
	Secret string
	// TrustKey is the entry of TrustConfigMap with the peers' authorities, empty if the holder does not verify peers.
	TrustKey string
	// OwnKey is the entry with the authorities of the holder's own certificate, if it needs them.
	OwnKey string
}

// APIServer is the identity with which virt-api serves its webhooks and its API.
func APIServer() Identity { return Identity{Secret: APISecret} }

// HandlerServer is the identity with which virt-handler serves virt-api, its only trusted client. Virt-handlers use the
// same certificate among each other (PeerServerConfig, PeerClientConfig).
func HandlerServer() Identity {
	return Identity{TrustKey: trustKey(HandlerClientSecret), OwnKey: HandlerTrust()}
}

// HandlerClient is the identity with which virt-api calls virt-handlers, each with a certificate for its own node
// (nodecert.DNSName).
func HandlerClient() Identity {
	return Identity{Secret: HandlerClientSecret, TrustKey: HandlerTrust()}
}

// HandlerTrust is the entry of TrustConfigMap with the authorities of virt-handlers.
func HandlerTrust() string { return trustKey(HandlerAuthoritySecret) }

// UploadProxy is the identity with which virt-api calls workers. Each has its own name, for ClientConfigFor.
func UploadProxy() Identity {
	return Identity{Secret: UploadSecret, TrustKey: trustKey(UploadSecret)}
}

// UploadProxyTrust is the entry of TrustConfigMap with the authorities of the upload proxy's server certificate.
func UploadProxyTrust() string { return trustKey(APISecret) }

// MetricsTrust is the entry of TrustConfigMap with the authorities of the metrics' certificate.
func MetricsTrust() string { return trustKey(MetricsSecret) }

func trustKey(secret string) string { return secret + ".crt" }

// dnsName returns the subject of the certificate in a Secret. Only virt-api's is a DNS name, of its Service.
func dnsName(secret string) string {
	switch secret {
	case APISecret:
		return "virt-api." + clusterconfig.Namespace + ".svc"
	case HandlerAuthoritySecret:
		// The certificate that cert-controller issues beside the authority is for no node, and unused.
		return "virt-handler-ca." + clusterconfig.Namespace + ".svc"
	case UploadSecret:
		return workertls.ProxyName
	case MetricsSecret:
		return MetricsName
	default:
		return "virt-api-client." + clusterconfig.Namespace + ".svc"
	}
}
