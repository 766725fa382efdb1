// Package podlabels says by which labels and annotations rules and loops go that look at Drydock's pods.
//
// It owns the two lists. The policy config/rbac/pod-policy.yaml keeps everybody but virt-controller from changing what is
// on them, and a VMI's own labels of these keys do not reach its pods. A test of package repository fails for a key that
// is decided by and is on no list. It must not decide anything by them itself.
package podlabels

import (
	"maps"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/datavolume"
)

// KeptFromEviction is the label, without a value, of the launcher pods whose budget keeps them from evictions.
const KeptFromEviction = "drydock.dev/kept-from-eviction"

// Labels are the labels of Drydock's pods that rules and selectors go by, besides those of Prefix.
func Labels() []string {
	return []string{
		v1.AppLabel, v1.CreatedByLabel, v1.DeprecatedVirtualMachineNameLabel, v1.MigrationJobLabel,
		layout.MaintenanceForLabel, KeptFromEviction, datavolume.LabelComponent, datavolume.LabelService,
	}
}

// Prefix begins further labels of that kind.
const Prefix = layout.ClaimLabelPrefix

// Annotations are the annotations of Drydock's pods that rules go by. What a pod says of its networks is not on the list:
// it is not believed further than its author may go (decision 404).
func Annotations() []string {
	return []string{
		v1.DomainAnnotation, v1.EphemeralProvisioningObject, v1.MigrationJobNameAnnotation,
		datavolume.AnnRestarts, datavolume.AnnTarget,
	}
}

// IsLabel reports whether a label is one of them.
func IsLabel(key string) bool {
	if strings.HasPrefix(key, Prefix) {
		return true
	}
	for _, label := range Labels() {
		if label == key {
			return true
		}
	}
	return false
}

// Without removes the labels of that kind from a pod's that come from somebody else's object.
func Without(labels map[string]string) {
	maps.DeleteFunc(labels, func(key, _ string) bool { return IsLabel(key) })
}
