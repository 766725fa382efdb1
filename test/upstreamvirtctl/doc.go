// Package upstreamvirtctl proves that the virtctl of a KubeVirt release works with Drydock: it is built from the
// release's module, and each of its verbs is typed as a user does, on a cluster with a guest. It is a module of its own
// because that program wants Kubernetes libraries of its own versions; nothing of it is linked into another one.
//
// The cluster is the embedded one, with its kubeconfig in KUBECONFIG; Drydock must be deployed in it and the test
// guest's images must be on its nodes. kubectl is that of bin/drydock, and ssh, scp and ssh-keygen are this machine's.
package upstreamvirtctl
