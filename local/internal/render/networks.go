package render

import (
	_ "embed"
	"strings"
)

//go:embed networks.yaml
var networksManifest string

//go:embed policies.yaml
var policiesManifest string

const (
	// PodBridge is the interface of a node that its pods are behind.
	PodBridge = "cni0"
	// PoliciesFolder is the folder of a node's agent of NetworkPolicies. It ends with the node.
	PoliciesFolder = "/run/drydock-policies"
	// PoliciesUser is who the agents are to the API server.
	PoliciesUser = "drydock:policies"
)

// Policies is the manifest of the rights of the agents of NetworkPolicies.
func Policies() string { return strings.ReplaceAll(policiesManifest, "${USER}", PoliciesUser) }

// NetworksDefinition is the name of the definition of networks beside the pods'.
const NetworksDefinition = "network-attachment-definitions.k8s.cni.cncf.io"

// Networks is the manifest of the networks beside the pods': their definition, and the right of
// nodes to read them.
func Networks() string { return networksManifest }
