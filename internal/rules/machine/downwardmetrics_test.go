package machine

import (
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func metricsVMI(t *testing.T) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := readVMI(t, "testdata/smallest.yaml")
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "figures", VolumeSource: v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}})
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		v1.Disk{Name: "figures", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	return vmi
}

func TestWhatVirtLauncherIsToTellAGuestOfItsHost(t *testing.T) {
	both, file := metricsVMI(t), layout.MetricsFile("figures")
	disk, channel, none := both.DeepCopy(), both.DeepCopy(), both.DeepCopy()
	disk.Spec.Domain.Devices.DownwardMetrics = nil
	channel.Spec.Volumes = nil
	none.Spec.Volumes, none.Spec.Domain.Devices.DownwardMetrics = nil, nil
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want *launch.DownwardMetrics
	}{
		"by both":    {both, &launch.DownwardMetrics{HostName: "node1", Disk: file, Channel: true}},
		"by a disk":  {disk, &launch.DownwardMetrics{HostName: "node1", Disk: file}},
		"by a port":  {channel, &launch.DownwardMetrics{HostName: "node1", Channel: true}},
		"by nothing": {none, nil},
	} {
		if got := DownwardMetrics(&c.vmi.Spec, "node1"); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestFiguresAreTheTargets: the disk must not move with its guest. The target writes its own.
func TestFiguresAreTheTargets(t *testing.T) {
	if mirrors := Mirrors(metricsVMI(t)); slices.ContainsFunc(mirrors, func(m Mirror) bool { return m.Volume == "figures" }) {
		t.Errorf("what moves with the guest: %+v", mirrors)
	}
}

// TestFiguresMoveNoOtherDevice: adding the disk at the end of the list, and the port, must leave all other devices at
// their addresses.
func TestFiguresMoveNoOtherDevice(t *testing.T) {
	with := metricsVMI(t)
	without := with.DeepCopy()
	without.Spec.Volumes = without.Spec.Volumes[:len(without.Spec.Volumes)-1]
	without.Spec.Domain.Devices.Disks = without.Spec.Domain.Devices.Disks[:len(without.Spec.Domain.Devices.Disks)-1]
	without.Spec.Domain.Devices.DownwardMetrics = nil
	args := func(vmi *v1.VirtualMachineInstance) []string {
		m, err := Build(prepared(vmi))
		if err != nil {
			t.Fatal(err)
		}
		return m.Args()
	}
	all := args(with)
	for _, arg := range args(without) {
		if !slices.Contains(all, arg) {
			t.Errorf("%s is another one, or gone", arg)
		}
	}
	const port = `"name":"org.github.vhostmd.1","nr":2`
	if !slices.ContainsFunc(all, func(arg string) bool { return strings.Contains(arg, port) }) {
		t.Errorf("no port is %s", port)
	}
}
