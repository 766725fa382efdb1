package clusterconfig

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/quantity"
)

// KubeVirt documents this default.
const defaultHotplugRatio uint32 = 4

// LiveUpdate bounds the growth of running guests.
type LiveUpdate struct {
	// MaxHotplugRatio is the multiple of its initial resources that a guest may reach.
	MaxHotplugRatio uint32
	// MaxCPUSockets is a guest's maximum number of sockets; 0 means by the ratio.
	MaxCPUSockets uint32
	// MaxGuest is a guest's maximum memory in bytes; 0 means by the ratio.
	MaxGuest int64
}

func liveUpdate(set *v1.LiveUpdateConfiguration) LiveUpdate {
	l := LiveUpdate{MaxHotplugRatio: defaultHotplugRatio}
	if set == nil {
		return l
	}
	if set.MaxHotplugRatio > 0 {
		l.MaxHotplugRatio = set.MaxHotplugRatio
	}
	if set.MaxCpuSockets != nil {
		l.MaxCPUSockets = *set.MaxCpuSockets
	}
	if set.MaxGuest != nil && quantity.Memory(*set.MaxGuest) == nil {
		l.MaxGuest = set.MaxGuest.Value()
	}
	return l
}
