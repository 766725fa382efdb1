package launcherpod

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podlabels"
)

// KeptLabel marks, for a budget, launcher pods that an eviction must not stop: the VMI's evictionStrategy decides about
// the guest (decision 310).
const KeptLabel = podlabels.KeptFromEviction

// Kept reports whether a VMI's pods have KeptLabel. Admission sets the cluster's strategy in the VMI.
func Kept(vmi *v1.VirtualMachineInstance) bool {
	s := vmi.Spec.EvictionStrategy
	return s != nil && *s != "" && *s != v1.EvictionStrategyNone
}
