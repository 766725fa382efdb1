// Package clientgo proves that programs written against kubevirt.io/client-go
// work with Drydock: every subresource is used through that client, on a real
// cluster with real guests. It is a module of its own because the client wants
// older Kubernetes libraries than Drydock itself.
//
// The cluster is the one of KUBECONFIG; Drydock must be deployed in it and the
// test guest's images must be on its nodes.
package clientgo
