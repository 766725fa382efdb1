// Package upstreamvirtctl tests that the virtctl of a KubeVirt release works with Drydock. The test builds it from
// the release's module and runs each of its commands, on a cluster with a guest. It is a separate module because that
// program requires other versions of Kubernetes libraries; no other module must link it.
//
// The cluster is the embedded one, with its kubeconfig in KUBECONFIG. It needs Drydock, and the test guest's images
// on its nodes. kubectl is bin/drydock's, and ssh, scp and ssh-keygen are this machine's.
package upstreamvirtctl
