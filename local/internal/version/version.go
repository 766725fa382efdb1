// Package version has the versions of Drydock and of its embedded Kubernetes.
package version

import (
	"fmt"

	"k8s.io/component-base/version"
)

// Version is set by the linker (-X) to the result of hack/version.
var Version = "v0.0.0-devel"

// Text formats both versions.
func Text() string {
	return fmt.Sprintf("Drydock %s\nKubernetes %s\n", Version, version.Get().GitVersion)
}
