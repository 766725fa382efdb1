package launcherpod

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/podlabels"
)

// KeptLabel is on the launcher pods that an eviction must not stop by itself: what becomes of
// the guest is decided by the VMI's evictionStrategy. The budget of such pods selects by it.
// See decision 310.
const KeptLabel = podlabels.KeptFromEviction

// Kept reports whether a VMI's pods are such. Admission fills in the cluster's strategy.
func Kept(vmi *v1.VirtualMachineInstance) bool {
	s := vmi.Spec.EvictionStrategy
	return s != nil && *s != "" && *s != v1.EvictionStrategyNone
}
