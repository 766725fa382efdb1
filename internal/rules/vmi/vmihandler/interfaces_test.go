package vmihandler

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func TestWhatKeepsAVMIOnItsNode(t *testing.T) {
	shared := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}}}}
	alone := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	file := func(shared *bool) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/x", Shared: shared}}
		}
	}
	readable := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}}}}
	either := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany}}}}
	ephemeral := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}
	}
	bridge := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
	}
	beside := func(device v1.DiskDevice) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "image", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}})
			vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: "image", DiskDevice: device})
		}
	}
	share := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Disks = nil
		vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "root", Virtiofs: &v1.FilesystemVirtiofs{}}}
	}
	const (
		disks, unshared = "DisksNotLiveMigratable", "PVC data is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
		local           = "volume root is a file on this node (hostDisk without shared)"
	)
	for name, test := range map[string]struct {
		edits  []func(*v1.VirtualMachineInstance)
		known  map[string]Volume
		want   vmistatus.Obstacle
		method v1.VirtualMachineInstanceMigrationMethod
	}{
		"nothing":              {nil, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a claim for one node": {nil, alone, vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + unshared}, v1.BlockMigration},
		"a claim for one node whose disk is copied to another": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root"}}
		}}, alone, vmistatus.Obstacle{}, v1.BlockMigration},
		"a shared claim whose disk is copied to another": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root"}}
		}}, shared, vmistatus.Obstacle{}, v1.BlockMigration},
		"a claim whose disk is copied to another, and a file on the node": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root"}}
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "file", VolumeSource: v1.VolumeSource{HostDisk: &v1.HostDisk{}}})
		}}, alone, vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: volume file is a file on this node (hostDisk without shared)"}, v1.BlockMigration},
		"a claim that is not known": {nil, nil, vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: PVC data of volume root is not known yet"}, v1.BlockMigration},
		"a file on the node":        {[]func(*v1.VirtualMachineInstance){file(nil)}, nil, vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + local}, v1.BlockMigration},
		"a file that is not shared": {[]func(*v1.VirtualMachineInstance){file(new(false))}, nil, vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + local}, v1.BlockMigration},
		"a file on every node":      {[]func(*v1.VirtualMachineInstance){file(new(true))}, nil, vmistatus.Obstacle{}, v1.BlockMigration},
		"a disk that is the pod's": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}
		}}, nil, vmistatus.Obstacle{}, v1.BlockMigration},
		"changes to a claim that every node can read":  {[]func(*v1.VirtualMachineInstance){ephemeral}, readable, vmistatus.Obstacle{}, v1.BlockMigration},
		"changes to a claim that every node can write": {[]func(*v1.VirtualMachineInstance){ephemeral}, shared, vmistatus.Obstacle{}, v1.BlockMigration},
		"changes to a claim for one node": {[]func(*v1.VirtualMachineInstance){ephemeral}, alone,
			vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + unshared}, v1.BlockMigration},
		"an image that is only read": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}}
		}}, nil, vmistatus.Obstacle{}, v1.LiveMigration},
		"an image on a CD-ROM beside a shared claim":            {[]func(*v1.VirtualMachineInstance){beside(v1.DiskDevice{CDRom: &v1.CDRomTarget{}})}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"an image on a disk that is only read":                  {[]func(*v1.VirtualMachineInstance){beside(v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}})}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"an image on a disk that is written to, beside a claim": {[]func(*v1.VirtualMachineInstance){beside(v1.DiskDevice{Disk: &v1.DiskTarget{}})}, shared, vmistatus.Obstacle{}, v1.BlockMigration},
		"an image on a CD-ROM beside a claim for one node": {[]func(*v1.VirtualMachineInstance){beside(v1.DiskDevice{CDRom: &v1.CDRomTarget{}})}, alone,
			vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + unshared}, v1.BlockMigration},
		"a folder on a shared claim":                {[]func(*v1.VirtualMachineInstance){share}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a folder on a claim that every node reads": {[]func(*v1.VirtualMachineInstance){share}, readable, vmistatus.Obstacle{}, v1.LiveMigration},
		"a folder on a claim for one writer or readers": {[]func(*v1.VirtualMachineInstance){share}, either,
			vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + unshared}, v1.BlockMigration},
		"a folder that is only read on such a claim": {[]func(*v1.VirtualMachineInstance){share, func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		}}, either, vmistatus.Obstacle{}, v1.LiveMigration},
		"a folder on a claim for one node": {[]func(*v1.VirtualMachineInstance){share}, alone,
			vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: " + unshared}, v1.BlockMigration},
		"a folder of a ConfigMap": {[]func(*v1.VirtualMachineInstance){share, func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}
		}}, nil, vmistatus.Obstacle{}, v1.LiveMigration},
		"a volume that is on its way": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) { plugging(vmi, v1.VolumePending) }}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a volume that was plugged": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) { plugging(vmi, v1.VolumeReady) }}, shared,
			vmistatus.Obstacle{Reason: disks, Message: "cannot migrate VMI: PVC new of volume plugged is not known yet"}, v1.BlockMigration},
		"the pod's own address": {[]func(*v1.VirtualMachineInstance){bridge}, shared,
			vmistatus.Obstacle{Reason: "InterfaceNotLiveMigratable", Message: "cannot migrate VMI: interface default gives the guest the pod's own address (bridge on the pod network)"}, v1.LiveMigration},
		"a GPU, and a disk": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "card", DeviceName: "example.com/card"}}
		}}, alone, vmistatus.Obstacle{Reason: "HostDeviceNotLiveMigratable", Message: "cannot migrate VMI: " + unshared + "; the guest has devices of its node (card)"}, v1.BlockMigration},
		"the pod's own address, which may change": {[]func(*v1.VirtualMachineInstance){bridge, func(vmi *v1.VirtualMachineInstance) {
			vmi.Annotations = map[string]string{"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
		}}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a bridge on another network": {[]func(*v1.VirtualMachineInstance){bridge, func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Networks[0].Pod = nil }}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a bridge on no network":      {[]func(*v1.VirtualMachineInstance){bridge, func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Networks = nil }}, shared, vmistatus.Obstacle{}, v1.LiveMigration},
		"a TPM that is kept, and a disk": {[]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
		}}, alone, vmistatus.Obstacle{Reason: "NotMigratable", Message: "cannot migrate VMI: " + unshared + "; PVC " +
			"persistent-state-for-web-bp7jgxtqym of the VM's state is not known yet"}, v1.BlockMigration},
		"UEFI variables that are kept on a shared claim": {[]func(*v1.VirtualMachineInstance){keepVariables}, withState(shared, corev1.ReadWriteMany), vmistatus.Obstacle{}, v1.LiveMigration},
		"UEFI variables that are kept on a claim for one node": {[]func(*v1.VirtualMachineInstance){keepVariables}, withState(shared, corev1.ReadWriteOnce),
			vmistatus.Obstacle{Reason: "NotMigratable", Message: "cannot migrate VMI: PVC persistent-state-for-web-bp7jgxtqym of the VM's state (UEFI variables, TPM) is not shared (using ReadWriteMany access mode)"}, v1.LiveMigration},
		"UEFI variables that are kept, nobody knows how": {[]func(*v1.VirtualMachineInstance){keepVariables}, shared,
			vmistatus.Obstacle{Reason: "NotMigratable", Message: "cannot migrate VMI: PVC persistent-state-for-web-bp7jgxtqym of the VM's state is not known yet"}, v1.LiveMigration},
		"a disk and an address": {[]func(*v1.VirtualMachineInstance){bridge}, alone,
			vmistatus.Obstacle{Reason: "InterfaceNotLiveMigratable", Message: "cannot migrate VMI: " + unshared + "; interface default gives the guest the pod's own address (bridge on the pod network)"}, v1.BlockMigration},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance()
			for _, edit := range test.edits {
				edit(vmi)
			}
			var got vmistatus.Obstacle
			if o := hindrancesOf(vmi, vmi.Status.VolumeStatus, test.known, nil).all(); o != nil {
				got = *o
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if method := migrationMethod(vmi, vmi.Status.VolumeStatus, test.known); method != test.method {
				t.Errorf("it migrates by %s, want %s", method, test.method)
			}
		})
	}
}

// TestWhatKeepsAGuestWhoseDisksAreCopied: a disk that can be copied to another claim must be no obstacle, but
// everything else must be.
func TestWhatKeepsAGuestWhoseDisksAreCopied(t *testing.T) {
	alone := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	claim := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}
	disk := v1.DiskDevice{Disk: &v1.DiskTarget{}}
	bridge := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
	}
	const unshared = "PVC root is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
	for name, test := range map[string]struct {
		source v1.VolumeSource
		device v1.DiskDevice
		edit   func(*v1.VirtualMachineInstance)
		want   string
	}{
		"a disk on a claim of one node":  {claim, disk, nil, ""},
		"a cdrom on a claim of one node": {claim, v1.DiskDevice{CDRom: &v1.CDRomTarget{}}, nil, unshared},
		"a folder on a claim of one node": {claim, v1.DiskDevice{}, func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Disks = nil
			vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "root"}}
		}, unshared},
		"a LUN on a claim of one node":    {claim, v1.DiskDevice{LUN: &v1.LunTarget{}}, nil, unshared},
		"a file of the node":              {v1.VolumeSource{HostDisk: &v1.HostDisk{}}, disk, nil, "volume root is a file on this node (hostDisk without shared)"},
		"the pod's own address":           {claim, disk, bridge, "interface default gives the guest the pod's own address (bridge on the pod network)"},
		"what a claim of one node backs":  {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}}, disk, nil, unshared},
		"a state that is not known where": {claim, disk, keepVariables, "PVC persistent-state-for-web-bp7jgxtqym of the VM's state is not known yet"},
	} {
		vmi := instance()
		vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: test.source}}
		vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: test.device}}
		if test.edit != nil {
			test.edit(vmi)
		}
		want := vmistatus.Obstacle{}
		if test.want != "" {
			want = vmistatus.Obstacle{Reason: "NotMigratable", Message: "cannot migrate VMI with its storage: " + test.want}
		}
		got := vmistatus.Obstacle{}
		if o := hindrancesOf(vmi, nil, alone, nil).storage(); o != nil {
			got = *o
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func keepVariables(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: new(true)}}}
}

// withState adds the claim of the VM's state to the known volumes.
func withState(known map[string]Volume, mode corev1.PersistentVolumeAccessMode) map[string]Volume {
	with := maps.Clone(known)
	with[stateclaim.Volume] = Volume{Claim: &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{mode}}}
	return with
}

func TestAnAddressThatANetworkGivesToThePodKeepsTheGuestThere(t *testing.T) {
	const says = "cannot migrate VMI: interface red gives the guest the address 203.0.113.7, which its network has given to the pod (IPAM)"
	for name, test := range map[string]struct {
		ips         []string
		annotations map[string]string
		stays       string
		want        string
	}{
		"a network that gives no addresses":           {nil, nil, "", ""},
		"a network that gives addresses":              {[]string{"203.0.113.7"}, nil, "", says},
		"an address that may change with a migration": {[]string{"203.0.113.7"}, map[string]string{allowPodBridge: ""}, "", ""},
		"a binding that keeps it":                     {nil, map[string]string{allowPodBridge: ""}, "as it likes", "cannot migrate VMI: interface red: as it likes"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance()
			vmi.Spec.Volumes, vmi.Annotations = nil, test.annotations
			vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}})
			vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces,
				v1.Interface{Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
			var got string
			if o := hindrancesOf(vmi, nil, nil, []Interface{{Name: "default", IPs: []string{"10.244.9.5"}}, {Name: "red", IPs: test.ips, Stays: test.stays}}).all(); o != nil {
				got = o.Message
			}
			if got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheClaimOfAVMsStateIsOneOfItsGuests(t *testing.T) {
	vmi := instance()
	before := Claims(vmi)
	if _, has := before[stateclaim.Volume]; has {
		t.Errorf("a VM without state has %v", before)
	}
	keepVariables(vmi)
	if got := Claims(vmi); got[stateclaim.Volume] != stateclaim.ClaimName(vmi) || len(got) != len(before)+1 {
		t.Errorf("the claims are %v", got)
	}
}
