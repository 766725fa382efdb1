package guest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func TestWhichDisksHaveFailed(t *testing.T) {
	disks := []v1.Disk{{Name: "root"}, {Name: "data"}, {Name: "sda"}, {Name: "well"}}
	devices := []blockDevice{
		{Device: "/machine/peripheral/disk-data/virtio-backend", IOStatus: "nospace"},
		{Device: "disk-root", IOStatus: "failed"},
		{Device: "/machine/peripheral/disk-well/virtio-backend", IOStatus: "ok"},
		// Devices that are not the VMI's, are listed twice or have an invalid status are ignored.
		{Device: "/machine/peripheral/disk-other", IOStatus: "failed"},
		{Device: "disk-root", IOStatus: "failed"},
		{Device: "disk-sda", IOStatus: "\x1b[2J"},
		{},
	}
	want := []vmihandler.FailedDisk{{Volume: "root"}, {Volume: "data", Full: true}}
	if diff := cmp.Diff(want, failedDisks(devices, disks)); diff != "" {
		t.Errorf("failed disks (-want +got):\n%s", diff)
	}
}
