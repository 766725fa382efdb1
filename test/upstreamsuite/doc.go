// Command upstreamsuite runs the functional tests of a KubeVirt release against Drydock and compares their outcomes
// with the list of specs (specs.txt):
//
//	module -> edits -> compiled suite -> its specs -> list -> run on a cluster -> outcomes -> list
//
// The suite is compiled from the release's Go module in the build folder; none of its source is in this repository. Small
// edits there (edits.go) change assumptions that this cluster does not meet, never an assertion of a spec (decision 660).
// The command serves the suite's images from a plain HTTP registry; their guests greet as the suite expects (package guest).
//
// The cluster is the embedded one, with its kubeconfig in KUBECONFIG; Drydock must be deployed in it
// (hack/test-cluster upstream-suite).
package main
