// Package certs owns the certificates of Drydock's components: it has them
// made and rotated by cert-controller (Add), publishes the authorities that
// peers trust, and follows all of it through the API (Source), so that a
// rotation needs neither a restart nor a mounted Secret.
//
// It must not know what is served under a certificate.
//
//	Secret                              holder        who trusts its authority
//	kubevirt-virt-api-certs             virt-api      kube-apiserver (caBundle of webhooks and APIService)
//	kubevirt-virt-handler-server-certs  virt-handler  virt-api
//	kubevirt-virt-handler-client-certs  virt-api      virt-handler
//	kubevirt-upload-certs               virt-api      workers that take uploads and clones
//
// The authority of the last also signs the workers' own certificates, for which
// virt-controller reads it (workertls.Authority).
//
// Each Secret has an authority of its own, so that a node that loses its key
// can't pass for virt-api. The authorities' certificates, without keys, are in
// the ConfigMap kubevirt-ca; but for that, no component reads the Secret of another.
package certs

import (
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/clusterconfig"
)

// Names of the Secrets and of the ConfigMap in clusterconfig.Namespace.
const (
	APISecret           = "kubevirt-virt-api-certs"
	HandlerServerSecret = "kubevirt-virt-handler-server-certs"
	HandlerClientSecret = "kubevirt-virt-handler-client-certs"
	UploadSecret        = "kubevirt-upload-certs"
	TrustConfigMap      = "kubevirt-ca"
)

// UploadProxyService is the name of the Service, in clusterconfig.Namespace,
// that leads to the upload proxy in virt-api.
const UploadProxyService = "cdi-uploadproxy"

// Identity names a certificate and those that its holder trusts.
type Identity struct {
	// Secret holds tls.crt and tls.key.
	Secret string
	// TrustKey is the entry of TrustConfigMap with the peers' authorities; empty
	// when the holder trusts nobody by certificate.
	TrustKey string
	// ServerName is what the peer's certificate must be valid for.
	ServerName string
}

// APIServer is what virt-api serves its webhooks and its API with.
func APIServer() Identity { return Identity{Secret: APISecret} }

// HandlerServer is what virt-handler serves with; it trusts virt-api only.
func HandlerServer() Identity {
	return Identity{Secret: HandlerServerSecret, TrustKey: trustKey(HandlerClientSecret)}
}

// HandlerClient is what virt-api calls virt-handler with.
func HandlerClient() Identity {
	return Identity{
		Secret:     HandlerClientSecret,
		TrustKey:   trustKey(HandlerServerSecret),
		ServerName: dnsName(HandlerServerSecret),
	}
}

// UploadProxy is what virt-api calls the workers with that take uploads. Each
// has a name of its own, to be given with ClientConfigFor.
func UploadProxy() Identity {
	return Identity{Secret: UploadSecret, TrustKey: trustKey(UploadSecret)}
}

// UploadProxyTrust is the entry of TrustConfigMap with the authorities of what the
// upload proxy serves with.
func UploadProxyTrust() string { return trustKey(APISecret) }

// trustKey is the ConfigMap's entry for the authorities of a Secret.
func trustKey(secret string) string { return secret + ".crt" }

// dnsName is the subject of the certificate in a Secret. Only virt-api's is a
// name that DNS knows: kube-apiserver calls it by its Service.
func dnsName(secret string) string {
	switch secret {
	case APISecret:
		return "virt-api." + clusterconfig.Namespace + ".svc"
	case HandlerServerSecret:
		return "virt-handler." + clusterconfig.Namespace + ".svc"
	case UploadSecret:
		return workertls.ProxyName
	default:
		return "virt-api-client." + clusterconfig.Namespace + ".svc"
	}
}
