// Package runbooks tests that the kubectl commands in the runbooks exist, with their flags and templates. It is in this
// module because Drydock's own does not link kubectl. It owns nothing else.
package runbooks
