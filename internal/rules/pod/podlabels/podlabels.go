// Package podlabels lists the labels and annotations of Drydock's pods on which rules and loops depend. It must not
// decide anything by them.
//
// The policy config/rbac/pod-policy.yaml lets only virt-controller change them, and a VMI's own labels of these keys do
// not reach its pods. A test of package repository fails for a key that decides something and is on no list.
package podlabels

import (
	"maps"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// KeptFromEviction is the label of launcher pods that a budget protects from eviction.
const KeptFromEviction = "drydock.dev/kept-from-eviction"

// Labels returns the labels that rules and selectors use, besides those of Prefix.
func Labels() []string {
	return []string{
		v1.AppLabel, v1.CreatedByLabel, v1.DeprecatedVirtualMachineNameLabel, v1.MigrationJobLabel,
		layout.MaintenanceForLabel, KeptFromEviction, datavolume.LabelComponent, datavolume.LabelService,
	}
}

// Prefix begins further labels that rules use.
const Prefix = layout.ClaimLabelPrefix

// Annotations returns the annotations that rules use. A pod's network annotations are left out: they grant no more than
// their author's own rights (decision 404).
func Annotations() []string {
	return []string{
		v1.DomainAnnotation, v1.EphemeralProvisioningObject, v1.MigrationJobNameAnnotation,
		datavolume.AnnRestarts, datavolume.AnnTarget,
	}
}

// IsLabel reports whether a label is in Labels or begins with Prefix.
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

// Without removes these labels from a pod's labels that come from another user's object.
func Without(labels map[string]string) {
	maps.DeleteFunc(labels, func(key, _ string) bool { return IsLabel(key) })
}
