package configuration

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// virtctl does not import the rules of components, so this test compares its messages about them with the rules.
func TestWhatIsSaidOfLevelsIsSo(t *testing.T) {
	levels := func(set *v1.LogVerbosity) clusterconfig.Verbosity {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{LogVerbosity: set}
		return clusterconfig.FromKubeVirt(kv).Verbosity
	}
	if got := levels(&v1.LogVerbosity{VirtAPI: maxLevel}).API; got != drydockMax {
		t.Errorf("%d counts as %d, and virtctl says as %d", maxLevel, got, drydockMax)
	}
	if got := levels(nil).API; got != drydockDefault {
		t.Errorf("where nothing is set the level is %d, and virtctl says %d", got, drydockDefault)
	}
}
