// Package clientgo tests that programs with kubevirt.io/client-go work with Drydock: it calls every subresource by
// that client, on a real cluster with real guests. It is a separate module because the client requires older
// Kubernetes libraries than Drydock; no other module must link it.
//
// The cluster is the one in KUBECONFIG. It needs Drydock, and the test guest's images on its nodes.
package clientgo
