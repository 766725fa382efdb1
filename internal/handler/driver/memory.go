package driver

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podresize"
)

func (d *Driver) observeMemory(s *snapshot) {
	s.memory = guestlifecycle.MemoryStep{Given: s.guest.Memory.Requested}
	vmi := s.presence.VMI
	if s.role != guestlifecycle.Home || !s.guest.Memory.Known {
		return
	}
	if s.guest.RunState == runstate.Running {
		s.keptMemory = s.attached.guest.KeptMemory()
	}
	if !podresize.MemoryAnnounced(vmi) || s.guest.Migration.UnderWay() {
		return
	}
	if want, known := d.podResources(vmi); known {
		s.memory = guestlifecycle.DecideMemory(vmi, s.guest.Memory, s.guest.RunState, s.presence.Pod, want)
	}
}

func (d *Driver) podResources(vmi *v1.VirtualMachineInstance) (want corev1.ResourceRequirements, known bool) {
	want, err := launcherpod.Resized(vmi, d.env.Settings())
	if err != nil {
		d.log.Info("what the launcher pod is to have is not known", "reason", err.Error())
	}
	return want, err == nil
}
