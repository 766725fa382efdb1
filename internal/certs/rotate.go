package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// Add makes mgr issue and renew the certificates, inject virt-api's authority into APIServices and publish all
// authorities. The channel is closed once kube-apiserver has virt-api's authority.
//
// lifetimes learn of the certificates. Add needs no leader: a rotation is one update of a Secret with an optimistic
// lock, so one process succeeds and the others find a valid certificate.
func Add(mgr manager.Manager, lifetimes *Lifetimes, apiServices ...string) (<-chan struct{}, error) {
	dir, err := markerDir()
	if err != nil {
		return nil, err
	}
	var injected []rotator.WebhookInfo
	for _, name := range apiServices {
		injected = append(injected, rotator.WebhookInfo{Name: name, Type: rotator.APIService})
	}
	api := newRotator(APISecret, x509.ExtKeyUsageServerAuth, injected)
	rotators := []*rotator.CertRotator{
		api,
		newRotator(HandlerAuthoritySecret, x509.ExtKeyUsageClientAuth, nil),
		newRotator(HandlerClientSecret, x509.ExtKeyUsageClientAuth, nil),
		newRotator(UploadSecret, x509.ExtKeyUsageClientAuth, nil),
		newRotator(MetricsSecret, x509.ExtKeyUsageServerAuth, nil),
	}
	for _, r := range rotators {
		r.CertDir = dir
		if err := rotator.AddRotator(mgr, r); err != nil {
			return nil, fmt.Errorf("adding the rotation of Secret %s: %w", r.SecretKey, err)
		}
	}
	if err := mgr.Add(&retirement{client: mgr.GetClient(), reader: mgr.GetAPIReader()}); err != nil {
		return nil, fmt.Errorf("adding the removal of what is no longer used: %w", err)
	}
	return api.IsReady, errors.Join(addPublisher(mgr), addRenewer(mgr, rotators, lifetimes))
}

func newRotator(secret string, usage x509.ExtKeyUsage, injected []rotator.WebhookInfo) *rotator.CertRotator {
	r := &rotator.CertRotator{
		SecretKey:      types.NamespacedName{Namespace: clusterconfig.Namespace, Name: secret},
		CAName:         secret + "-ca",
		CAOrganization: "drydock",
		DNSName:        dnsName(secret),
		IsReady:        make(chan struct{}),
		Webhooks:       injected,
		FieldOwner:     "virt-api-certificates",
		ExtKeyUsages:   &[]x509.ExtKeyUsage{usage},
		CertName:       corev1.TLSCertKey,
		KeyName:        corev1.TLSPrivateKeyKey,
		ControllerName: "cert-rotator-" + secret,
		// The rotator issues missing certificates, and those that expired while no virt-api ran.
		CaCertDuration:     clusterconfig.DefaultAuthorityDuration,
		ServerCertDuration: clusterconfig.DefaultCertificateDuration,
		LookaheadInterval:  time.Second,
	}
	if secret == APISecret {
		// The upload proxy serves with the same certificate.
		r.ExtraDNSNames = []string{
			"virt-api", "virt-api." + clusterconfig.Namespace,
			UploadProxyService, UploadProxyService + "." + clusterconfig.Namespace, UploadProxyService + "." + clusterconfig.Namespace + ".svc",
		}
	}
	return r
}

// markerDir creates a folder with an empty file of the certificate's name, without which the rotator ends its process:
// it expects a mounted Secret, where Drydock reads one through the API (Source). On a shared machine each user has
// another folder.
func markerDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("drydock-certificates-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the certificate rotator's folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, corev1.TLSCertKey), nil, 0o600); err != nil {
		return "", fmt.Errorf("making the certificate rotator's marker: %w", err)
	}
	return dir, nil
}
