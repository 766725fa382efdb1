package render

import _ "embed"

//go:embed networks.yaml
var networksManifest string

// NetworksDefinition is the name of the definition of networks beside the pods'.
const NetworksDefinition = "network-attachment-definitions.k8s.cni.cncf.io"

// Networks is the manifest of the networks beside the pods': their definition, and the right of
// nodes to read them.
func Networks() string { return networksManifest }
