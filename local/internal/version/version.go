// Package version says which Drydock this is, and which Kubernetes it carries.
package version

import (
	"fmt"

	"k8s.io/component-base/version"
)

// Version is Drydock's own version, set by the linker (-X) to what hack/version says.
var Version = "v0.0.0-devel"

// Text returns both versions, for people.
func Text() string {
	return fmt.Sprintf("Drydock %s\nKubernetes %s\n", Version, version.Get().GitVersion)
}
