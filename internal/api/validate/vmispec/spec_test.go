package vmispec

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// The wrong manifests of package validate's testdata/refused show the message of each rule about a spec.

func TestWhatIsAddedIsJudgedInItsPlace(t *testing.T) {
	one := uint(1)
	disk := func(name string, edit func(*v1.Disk)) v1.Disk {
		d := v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}}
		edit(&d)
		return d
	}
	volume := func(name string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}, Hotpluggable: true,
		}}}
	}
	memory := resource.MustParse("64Mi")
	before := &v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &memory}}}
	before.Domain.Devices.Disks = []v1.Disk{disk("root", func(d *v1.Disk) { d.BootOrder, d.Serial = &one, "admitted by an earlier release" })}
	before.Volumes = []v1.Volume{volume("root")}
	for name, c := range map[string]struct {
		edit func(*v1.Disk)
		want string
	}{
		"nothing that stands in the way":  {func(*v1.Disk) {}, ""},
		"a place in the order of booting": {func(d *v1.Disk) { d.BootOrder = &one }, "spec.domain.devices.disks[1].bootOrder: Duplicate value: 1"},
		"a value that can't be":           {func(d *v1.Disk) { d.Serial = "x y" }, `spec.domain.devices.disks[1].serial: Invalid value: "x y": must be made of letters, digits and _.+-`},
	} {
		after := before.DeepCopy()
		after.Domain.Devices.Disks = append(after.Domain.Devices.Disks, disk("data", c.edit))
		after.Volumes = append(after.Volumes, volume("data"))
		errs := ValidateAddition(after, before, field.NewPath("spec"))
		if got := fmt.Sprint(errs.ToAggregate()); c.want == "" && len(errs) > 0 || c.want != "" && got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A volume's name may be as long as that of a pod's volume.
func TestHowLongAVolumesNameMayBe(t *testing.T) {
	for length, want := range map[int]string{0: "Required value", 1: "", 57: "", 58: "", 63: "", 64: "must be no more than 63 characters"} {
		name := strings.Repeat("v", length)
		spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: name, VolumeSource: v1.VolumeSource{
			ContainerDisk: &v1.ContainerDiskSource{Image: "example.com/disk:1"},
		}}}}
		spec.Domain.Devices.Disks = []v1.Disk{{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}}
		got := fmt.Sprint(ValidateStorage(spec, field.NewPath("spec")).ToAggregate())
		if want == "" && got != "<nil>" || !strings.Contains(got, want) {
			t.Errorf("a name of %d characters: %s, want %q", length, got, want)
		}
	}
}

// Later additions to a spec, or those of an instance type, must be bounded like the spec itself. Errors beside the
// lists must be in the same refusal.
func TestASpecHasOnlySoManyDevices(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{Volumes: make([]v1.Volume, 300)}
	devices := &spec.Domain.Devices
	devices.Disks, devices.Interfaces = make([]v1.Disk, 256), make([]v1.Interface, 257)
	spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("1Ki"))}
	const want = `[spec.volumes: Too many: 300: must have at most 256 items, spec.domain.devices.interfaces: Too many: 257: must have at most 256 items, ` +
		`spec.domain.memory.guest: Invalid value: "1Ki": must be at least 1Mi]`
	if got := Validate(spec, field.NewPath("spec")).ToAggregate().Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// KubeVirt accepts leading zeros. A zone is of one node.
func TestAddressesMayHaveLeadingZeros(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{
		Networks:  []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{VMNetworkCIDR: "10.10.010.0/24"}}}},
		DNSPolicy: corev1.DNSNone,
		DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"01.1.1.1", "fe80::1%eth0"}},
	}
	spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
	spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
		DHCPOptions: &v1.DHCPOptions{NTPServers: []string{"0127.0.0.3"}},
	}}
	const want = `spec.dnsConfig.nameservers[1]: Invalid value: "fe80::1%eth0": must be an IP address`
	if got := Validate(spec, field.NewPath("spec")).ToAggregate().Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
