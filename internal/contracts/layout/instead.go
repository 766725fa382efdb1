package layout

// Alternatives to features that Drydock does not serve, for messages of virtctl and virt-api.
const (
	InsteadOfExports   = "copy a disk with a DataVolume whose source is its claim; to take one out of the cluster, read the claim in a pod"
	InsteadOfTemplates = "write the machine's manifest with 'virtctl create vm', and keep the variants with kustomize or Helm"
)
