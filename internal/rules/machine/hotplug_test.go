package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/propertytest"
)

func plug(spec *v1.VirtualMachineInstanceSpec, name string, device v1.DiskDevice) {
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true},
	}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: device})
}

func onBus(bus v1.DiskBus) v1.DiskDevice { return v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}} }

// TestWhatIsPluggedLaterIsNoPartOfTheMachine: a machine's arguments must be the same with and without hotpluggable
// volumes; only the start of its CPUs differs.
func TestWhatIsPluggedLaterIsNoPartOfTheMachine(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		before := withoutHalt(mustBuild(t, vmi).Args())
		for i := range rapid.IntRange(1, 5).Draw(t, "later") {
			plug(&vmi.Spec, fmt.Sprintf("later%d", i), onBus(rapid.SampledFrom([]v1.DiskBus{v1.DiskBusSCSI, v1.DiskBusVirtio}).Draw(t, "bus")))
		}
		if diff := cmp.Diff(before, withoutHalt(mustBuild(t, vmi).Args())); diff != "" {
			t.Fatalf("the machine differs:\n%s", diff)
		}
	})
}

// withoutHalt removes the argument that starts QEMU with stopped CPUs.
func withoutHalt(args []string) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-S":
		case args[i] == "-object" && strings.Contains(args[i+1], MarkerType):
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	return rest
}

// TestSlots plugs and unplugs disks in random order. No two devices may share an address, and after all disks are
// unplugged each must get its address from the spec's order again.
func TestSlots(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		bus := rapid.SampledFrom([]v1.DiskBus{v1.DiskBusSCSI, v1.DiskBusVirtio}).Draw(t, "bus")
		room := Room(&vmi.Spec, bus)
		if room < spareDisks {
			t.Fatalf("there is room for %d disks on %s", room, bus)
		}
		occupied := whereabouts(mustBuild(t, vmi))
		room = min(room, 12)
		var taken []Slot
		for i := range room {
			name := fmt.Sprintf("later%d", i)
			plug(&vmi.Spec, name, onBus(bus))
			slot, err := FreeSlot(&vmi.Spec, name, taken)
			if err != nil {
				t.Fatalf("disk %d of %d: %v", i, room, err)
			}
			if slices.Contains(taken, slot) {
				t.Fatalf("%v is taken", slot)
			}
			made, err := BuildPlug(Input{VMI: vmi, Images: map[string]launch.PreparedImage{name: {Source: "/dev/fdset/0", SourceFormat: "raw"}}}, name, slot)
			if err != nil {
				t.Fatal(err)
			}
			for id, place := range whereabouts(&Machine{Devices: []Properties{made.Device}}) {
				for other, elsewhere := range occupied {
					if place == elsewhere {
						t.Fatalf("%s is where %s is: %s", id, other, place)
					}
				}
			}
			taken = append(taken, slot)
		}
		again, err := FreeSlot(&vmi.Spec, "later0", nil)
		if err != nil || again != taken[0] {
			t.Fatalf("the first disk was at %v and comes back at %v (%v)", taken[0], again, err)
		}
	})
}

func TestAFullBusSaysSo(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	plug(&vmi.Spec, "a", onBus(v1.DiskBusVirtio))
	var taken []Slot
	for port := firstDiskPort; port < minPorts; port += portStep {
		taken = append(taken, Slot{v1.DiskBusVirtio, port})
	}
	const want = "the bus virtio is full: this machine takes at most 8 more disks than it started with"
	if _, err := FreeSlot(&vmi.Spec, "a", taken); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

func TestAPlug(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	plug(&vmi.Spec, "a-name-that-is-longer-than-a-serial", onBus(v1.DiskBusVirtio))
	plug(&vmi.Spec, "cd", v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}})
	image := launch.PreparedImage{Source: "/dev/fdset/3", SourceFormat: "raw", DirectIO: true, BlockDevice: true}
	in := Input{VMI: vmi, Images: map[string]launch.PreparedImage{"a-name-that-is-longer-than-a-serial": image, "cd": image}}
	for volume, want := range map[string][]string{
		"a-name-that-is-longer-than-a-serial": {
			`"filename":"/dev/fdset/3"`, `"driver":"host_device"`, `"direct":true`, `"bus":"port3"`, `"serial":"a-name-that-is-longe"`,
		},
		"cd": {`"read-only":true`},
	} {
		made, err := BuildPlug(in, volume, Slot{v1.DiskBusVirtio, 3})
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for i, b := range made.Blockdevs {
			text = append(text, b.text())
			if b["node-name"] != PlugNodes(volume)[i] {
				t.Errorf("node %d of %s is %v, not %s", i, volume, b["node-name"], PlugNodes(volume)[i])
			}
		}
		if IsDrive(&vmi.Spec, volume) != (made.Device == nil) {
			t.Errorf("%s is plugged with the device %v", volume, made.Device)
		}
		if made.Device != nil {
			text = append(text, made.Device.text())
		}
		for _, part := range want {
			if !strings.Contains(strings.Join(text, "\n"), part) {
				t.Errorf("%s is plugged without %s:\n%s", volume, part, strings.Join(text, "\n"))
			}
		}
	}
}

// TestALUNIsPluggedAsItIs: the guest speaks to the device itself. A file is no LUN.
func TestALUNIsPluggedAsItIs(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	plug(&vmi.Spec, "lun", v1.DiskDevice{LUN: &v1.LunTarget{}})
	image := launch.PreparedImage{Source: "/dev/fdset/3", SourceFormat: "raw", DirectIO: true, BlockDevice: true, LogicalBlock: 512}
	slot, err := FreeSlot(&vmi.Spec, "lun", nil)
	if err != nil || slot.Bus != v1.DiskBusSCSI {
		t.Fatalf("its place is %v (%v)", slot, err)
	}
	made, err := BuildPlug(Input{VMI: vmi, Images: map[string]launch.PreparedImage{"lun": image}}, "lun", slot)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"driver": "scsi-block", "bus": "scsi0.0", "lun": 0, "drive": NodeName("lun"),
		"serial": nil, "device_id": nil, "logical_block_size": nil, "write-cache": nil,
	} {
		if got := made.Device[key]; got != want {
			t.Errorf("its %s is %v, want %v; the device is %s", key, got, want, made.Device.text())
		}
	}
	if driver := made.Blockdevs[0]["driver"]; driver != "host_device" {
		t.Errorf("its node is %v", made.Blockdevs[0])
	}
	image.BlockDevice = false
	const want = `spec.domain.devices.disks[0].lun: volume "lun" is not a block device: a lun needs a claim with volumeMode Block`
	if _, err := BuildPlug(Input{VMI: vmi, Images: map[string]launch.PreparedImage{"lun": image}}, "lun", slot); err == nil || err.Error() != want {
		t.Errorf("of a file it says %v, want %s", err, want)
	}
}
