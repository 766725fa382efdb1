package disks

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// status is that of a volume with its claim's size and its disk's.
func status(volume, claim string, capacity, have int64) v1.VolumeStatus {
	return v1.VolumeStatus{Name: volume, Size: have, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
		ClaimName: claim, Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(capacity, resource.BinarySI)},
	}}
}

func TestDecideGrowth(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	grown := growth{volume: "root", claim: "c", capacity: 9, have: 5, pod: "launcher"}
	plugged := grown
	plugged.pod = "attachment"
	// plug makes the volume a hotplugged one, and gives a pod a volume on this node.
	plug := func(phase v1.VolumePhase, pod types.UID, volume, claim string) func(*concern.Round, *growing) {
		return func(v *concern.Round, _ *growing) {
			v.VMI.Status.VolumeStatus[0].HotplugVolume = &v1.HotplugVolumeStatus{AttachPodUID: "attachment"}
			v.VMI.Status.VolumeStatus[0].Phase = phase
			v.AttachmentPods = []hotplug.Pod{{UID: pod, Volumes: []hotplug.Volume{{Name: volume, Claim: claim}}}}
		}
	}
	for name, c := range map[string]struct {
		change func(*concern.Round, *growing)
		want   []growth
		after  time.Duration
	}{
		"the claim has grown":                           {func(*concern.Round, *growing) {}, []growth{grown}, 0},
		"the VMI is being deleted":                      {func(v *concern.Round, _ *growing) { v.VMI.DeletionTimestamp = new(metav1.Now()) }, nil, 0},
		"its guest is not there":                        {func(v *concern.Round, _ *growing) { v.VMI.Status.Phase = v1.Scheduled }, nil, 0},
		"the disk has what the claim has":               {func(v *concern.Round, _ *growing) { v.VMI.Status.VolumeStatus[0].Size = 9 }, nil, 0},
		"the disk's size is not known":                  {func(v *concern.Round, _ *growing) { v.VMI.Status.VolumeStatus[0].Size = 0 }, nil, 0},
		"the volume has no claim":                       {func(v *concern.Round, _ *growing) { v.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo = nil }, nil, 0},
		"the guest may only read":                       {func(v *concern.Round, _ *growing) { v.VMI.Spec.Domain.Devices.Disks[0].Disk.ReadOnly = true }, nil, 0},
		"the guest writes to an overlay":                {func(v *concern.Round, _ *growing) { v.Images["root"] = launch.PreparedImage{Overlay: "o"} }, nil, 0},
		"QEMU was started without it":                   {func(v *concern.Round, _ *growing) { delete(v.Images, "root") }, nil, 0},
		"it is growing":                                 {func(_ *concern.Round, g *growing) { g.busy["root"] = true }, nil, 0},
		"it was brought to that size":                   {func(_ *concern.Round, g *growing) { g.recordResult(grown, 8, nil, now) }, nil, 0},
		"another claim had its name, and the same size": {func(_ *concern.Round, g *growing) { g.tried["root"] = target{"c-before", 9} }, []growth{grown}, 0},
		"it was brought to another size":                {func(_ *concern.Round, g *growing) { g.tried["root"] = target{"c", 8} }, []growth{grown}, 0},
		"it failed just now":                            {func(_ *concern.Round, g *growing) { g.recordResult(grown, 0, errors.New("full"), now) }, nil, growPause},
		"it failed some time ago":                       {func(_ *concern.Round, g *growing) { g.recordResult(grown, 0, errors.New("full"), now.Add(-growPause)) }, []growth{grown}, 0},
		"the guest moves": {func(v *concern.Round, _ *growing) {
			v.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
		}, nil, 0},
		"the guest has come, and the status names the claim that it has left": {
			func(v *concern.Round, _ *growing) { v.Claims["root"].ClaimName = "c-there" }, nil, 0},
		"the launcher pod has no claim for it": {func(v *concern.Round, _ *growing) { delete(v.Claims, "root") }, nil, 0},
		"it is hotplugged":                     {plug(v1.VolumeReady, "attachment", "root", "c"), []growth{plugged}, 0},
		"it is being unplugged":                {plug(v1.HotplugVolumeDetaching, "attachment", "root", "c"), nil, 0},
		"it is hotplugged, and its attachment pod is on the node that the guest has left": {
			plug(v1.VolumeReady, "attachment-there", "root", "c"), nil, 0},
		"it is hotplugged, and its attachment pod is on the claim that the guest has left": {
			plug(v1.VolumeReady, "attachment", "root", "c-there"), nil, 0},
		"its attachment pod has another volume": {plug(v1.VolumeReady, "attachment", "data", "c"), nil, 0},
	} {
		instance := &v1.VirtualMachineInstance{}
		instance.Status.Phase = v1.Running
		instance.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
		instance.Status.VolumeStatus = []v1.VolumeStatus{status("root", "c", 9, 5)}
		view, g := concern.Round{VMI: instance, LauncherPod: "launcher", Images: map[string]launch.PreparedImage{"root": {}}}, newGrowing()
		view.Claims = map[string]*v1.PersistentVolumeClaimInfo{"root": {ClaimName: "c"}}
		c.change(&view, &g)
		due, after := decideGrowth(&view, &g, now)
		if !slices.Equal(due, c.want) || after != c.after {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, due, after, c.want, c.after)
		}
	}
}
