package layout

// What somebody is told to do in the place of what Drydock does not serve: by Drydock's virtctl, and by virt-api to
// everybody who writes to it himself.
const (
	InsteadOfExports   = "copy a disk with a DataVolume whose source is its claim; to take one out of the cluster, read the claim in a pod"
	InsteadOfTemplates = "write the machine's manifest with 'virtctl create vm', and keep the variants with kustomize or Helm"
)
