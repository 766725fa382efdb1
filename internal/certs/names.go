// Package certs owns the certificates of Drydock's components: it has them
// made and rotated by cert-controller (Add), publishes the authorities that
// peers trust, and follows all of it through the API (Source), so that a
// rotation needs neither a restart nor a mounted Secret. Only that of metrics is mounted:
// virt-handler, which has it too, may read no Secret.
//
// It must not know what a certificate is used for.
//
//	Secret                              holder        who trusts its authority
//	kubevirt-virt-api-certs             virt-api      kube-apiserver (caBundle of the APIServices)
//	kubevirt-virt-handler-ca            virt-api      virt-api and virt-handlers, of virt-handlers
//	kubevirt-virt-handler-client-certs  virt-api      virt-handler
//	kubevirt-upload-certs               virt-api      workers that take uploads and clones
//	kubevirt-metrics-certs              all           Prometheus, of all components
//
// A virt-handler has a key and a certificate for its node alone, in no Secret; the
// authority in kubevirt-virt-handler-ca signs it (nodecert, nodekey, nodesigner).
// The authority in kubevirt-upload-certs also signs the workers' own certificates, for which
// virt-controller reads it (workertls.Authority).
//
// Each Secret has an authority of its own, so that nobody can pass
// for virt-api with the stolen key of a node. The authorities' certificates, without
// keys, are in the ConfigMap kubevirt-ca; no component reads the Secret of another.
package certs

import (
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// Names of the Secrets and of the ConfigMap in clusterconfig.Namespace.
const (
	APISecret              = "kubevirt-virt-api-certs"
	HandlerAuthoritySecret = "kubevirt-virt-handler-ca"
	HandlerClientSecret    = "kubevirt-virt-handler-client-certs"
	UploadSecret           = "kubevirt-upload-certs"
	MetricsSecret          = "kubevirt-metrics-certs"
	TrustConfigMap         = "kubevirt-ca"
)

// UploadProxyService is the name of the Service, in clusterconfig.Namespace,
// that leads to the upload proxy in virt-api.
const UploadProxyService = "cdi-uploadproxy"

// MetricsName is the name in the certificate that all components serve metrics with: that of the Service that leads to
// them.
const MetricsName = "kubevirt-prometheus-metrics." + clusterconfig.Namespace + ".svc"

// Identity names a certificate and those that its holder trusts.
type Identity struct {
	// Secret holds tls.crt and tls.key; empty when the holder's key is in none (Use).
	Secret string
	// TrustKey is the entry of TrustConfigMap with the peers' authorities; empty
	// when the holder trusts nobody by certificate.
	TrustKey string
	// OwnKey is the entry of TrustConfigMap with the authorities of the holder's own
	// certificate; empty when it need not know them.
	OwnKey string
}

// APIServer is what virt-api serves its webhooks and its API with.
func APIServer() Identity { return Identity{Secret: APISecret} }

// HandlerServer is what virt-handler serves with; it trusts virt-api only. With the same
// certificate virt-handlers meet each other (PeerServerConfig, PeerClientConfig).
func HandlerServer() Identity {
	return Identity{TrustKey: trustKey(HandlerClientSecret), OwnKey: HandlerTrust()}
}

// HandlerClient is what virt-api calls virt-handlers with. Each must show the
// certificate of its own node (nodecert.DNSName).
func HandlerClient() Identity {
	return Identity{Secret: HandlerClientSecret, TrustKey: HandlerTrust()}
}

// HandlerTrust is the entry of TrustConfigMap with the authorities of virt-handlers.
func HandlerTrust() string { return trustKey(HandlerAuthoritySecret) }

// UploadProxy is what virt-api calls the workers with that take uploads. Each
// has a name of its own, which is given to ClientConfigFor.
func UploadProxy() Identity {
	return Identity{Secret: UploadSecret, TrustKey: trustKey(UploadSecret)}
}

// UploadProxyTrust is the entry of TrustConfigMap with the authorities of what the
// upload proxy serves with.
func UploadProxyTrust() string { return trustKey(APISecret) }

// MetricsTrust is the entry of TrustConfigMap with the authorities of what metrics are served with.
func MetricsTrust() string { return trustKey(MetricsSecret) }

// trustKey is the ConfigMap's entry for the authorities of a Secret.
func trustKey(secret string) string { return secret + ".crt" }

// dnsName is the subject of the certificate in a Secret. Only virt-api's is a
// name that DNS knows: kube-apiserver calls it by its Service.
func dnsName(secret string) string {
	switch secret {
	case APISecret:
		return "virt-api." + clusterconfig.Namespace + ".svc"
	case HandlerAuthoritySecret:
		// The certificate that cert-controller makes beside the authority is no
		// node's, and nobody uses it.
		return "virt-handler-ca." + clusterconfig.Namespace + ".svc"
	case UploadSecret:
		return workertls.ProxyName
	case MetricsSecret:
		return MetricsName
	default:
		return "virt-api-client." + clusterconfig.Namespace + ".svc"
	}
}
