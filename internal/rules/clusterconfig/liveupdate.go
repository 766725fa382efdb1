package clusterconfig

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/quantity"
)

// defaultHotplugRatio is that of configuration.liveUpdateConfiguration, as KubeVirt documents it.
const defaultHotplugRatio uint32 = 4

// LiveUpdate is how much room guests get to grow while they run
// (configuration.liveUpdateConfiguration).
type LiveUpdate struct {
	// MaxHotplugRatio is how many times what it is started with a guest may have.
	MaxHotplugRatio uint32
	// MaxCPUSockets is how many sockets a guest may have; 0 leaves that to the ratio.
	MaxCPUSockets uint32
	// MaxGuest is how much memory in bytes a guest may have; 0 leaves that to the ratio.
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
