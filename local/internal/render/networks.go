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
	// PodBridge connects a node's pods.
	PodBridge = "cni0"
	// PoliciesFolder is the folder of a node's NetworkPolicy agent. It ends with the node.
	PoliciesFolder = "/run/drydock-policies"
	// PoliciesUser is the agents' user of the API server.
	PoliciesUser = "drydock:policies"
)

// Policies returns the agents' RBAC objects.
func Policies() string { return strings.ReplaceAll(policiesManifest, "${USER}", PoliciesUser) }

// NetworksDefinition is the CRD of secondary networks.
const NetworksDefinition = "network-attachment-definitions.k8s.cni.cncf.io"

// Networks returns their CRD, and the nodes' right to read them.
func Networks() string { return networksManifest }
