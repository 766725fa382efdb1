// Command upstreamsuite runs the functional tests of a KubeVirt release against Drydock and compares what came of them
// with the list of specs (specs.txt):
//
//	module -> edits -> compiled suite -> its specs -> list -> run on a cluster -> outcomes -> list
//
// The suite is compiled from the release's Go module in the build folder; none of its source is in this repository. What
// it takes for granted, and this cluster does not have, is changed there by small edits (edits.go), never what a
// spec asserts (decision 660). Around it are a plain HTTP registry with the images that it asks for, and guests that greet
// as those that it waits for (package guest).
//
// The cluster is the embedded one, with its kubeconfig in KUBECONFIG; Drydock must be deployed in it
// (hack/test-cluster upstream-suite).
package main
