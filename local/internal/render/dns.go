package render

import (
	_ "embed"
	"strings"

	"drydock.dev/local/internal/layout"
)

//go:embed dns.yaml
var dnsManifest string

// DNS returns the manifest of CoreDNS.
func DNS(c layout.Cluster) string {
	return strings.NewReplacer("${IMAGE}", DNSImage, "${CLUSTER_IP}", c.DNSIP().String()).Replace(dnsManifest)
}
