package driver

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// TestAGuestIsToldOfTheNodeThatItIsOn: after a migration, virt-launcher gives the guest the figures of the new node.
func TestAGuestIsToldOfTheNodeThatItIsOn(t *testing.T) {
	vmi := withoutScratch(scheduled("web"))
	vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	v := newVoyageOf(t, vmi)
	v.beginAndCopy(nil)
	v.release()
	v.api.await(t, "the completion", completed)
	for _, s := range []*site{v.from, v.to} {
		var told *launch.DownwardMetrics
		for _, request := range s.model.Requests() {
			if request.Start != nil {
				told = request.Start.DownwardMetrics
			}
		}
		if want := (launch.DownwardMetrics{HostName: s.name, Channel: true}); told == nil || *told != want {
			t.Errorf("virt-launcher on %s is to tell %+v, want %+v", s.name, told, want)
		}
	}
}
