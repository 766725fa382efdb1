package commontypes

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

type preference struct {
	name, display string
	// Families of systems have no minimum.
	cpus   uint32
	memory string
	with   []trait
}

type trait func(*instancetypev1.VirtualMachinePreferenceSpec)

// Values of the annotation vm.kubevirt.io/os and the label os-type.
const (
	osLinux   = "linux"
	osWindows = "windows"
	osLegacy  = "legacy"
)

// OSAnnotation of a template or a VMI names its guest operating system.
const OSAnnotation = "vm.kubevirt.io/os"

// FlavorAnnotation of a template or a VMI is a word for its size.
const FlavorAnnotation = "vm.kubevirt.io/flavor"

// dpdkCPUs is the minimum for packet processing, which leaves some CPUs to the system.
const dpdkCPUs = 8

var (
	stream      = []trait{linux, ioThread}
	secureLinux = []trait{linux, ioThread, secureBoot, only("amd64")}
	windowsSata = []trait{windows, disk(v1.DiskBusSATA), nic("e1000e")}
	windowsPV   = []trait{windows, disk(v1.DiskBusVirtio), nic(v1.VirtIO), tablet, video(v1.VirtIO)}
)

var allPreferences = []preference{
	{"alpine", "Alpine Linux", 1, "512Mi", []trait{linux}},
	{"centos.stream10", "CentOS Stream 10", 1, "1.5Gi", stream},
	{"centos.stream10.desktop", "CentOS Stream 10 Desktop", 1, "1.5Gi", and(stream, tablet)},
	{"centos.stream9", "CentOS Stream 9", 1, "1.5Gi", stream},
	{"centos.stream9.desktop", "CentOS Stream 9 Desktop", 1, "1.5Gi", and(stream, tablet)},
	{"centos.stream9.dpdk", "CentOS Stream 9 DPDK", dpdkCPUs, "1.5Gi", and(stream, multiQueue, spread(4))},
	{"cirros", "CirrOS", 1, "256Mi", []trait{linux}},
	{"debian", "Debian", 1, "512Mi", []trait{linux, efi}},
	{"fedora", "Fedora (amd64)", 1, "2Gi", []trait{linux, secureBoot, only("amd64")}},
	{"fedora.arm64", "Fedora (arm64)", 1, "2Gi", []trait{linux, only("arm64")}},
	{"fedora.s390x", "Fedora (s390x)", 1, "2Gi", []trait{linux, only("s390x")}},
	{"legacy", "Legacy guest", 0, "", []trait{system(osLegacy), disk(v1.DiskBusSATA), nic("e1000")}},
	{"linux", "Linux", 0, "", []trait{linux}},
	{"linux.efi", "Linux with UEFI", 0, "", []trait{linux, efi}},
	{"linux.virtiotransitional", "Linux with transitional virtio devices", 0, "", []trait{linux, transitional}},
	{"opensuse.leap", "openSUSE Leap", 1, "2Gi", []trait{linux}},
	{"opensuse.tumbleweed", "openSUSE Tumbleweed", 1, "2Gi", []trait{linux}},
	{"oraclelinux", "Oracle Linux", 2, "4Gi", []trait{linux, efi}},
	{"rhel.10", "Red Hat Enterprise Linux 10 (amd64)", 1, "1.5Gi", secureLinux},
	{"rhel.10.arm64", "Red Hat Enterprise Linux 10 (arm64)", 1, "1.5Gi", []trait{linux, ioThread, only("arm64")}},
	{"rhel.10.s390x", "Red Hat Enterprise Linux 10 (s390x)", 1, "1.5Gi", []trait{linux, ioThread, only("s390x")}},
	{"rhel.7", "Red Hat Enterprise Linux 7", 1, "1Gi", []trait{linux}},
	{"rhel.7.desktop", "Red Hat Enterprise Linux 7 Desktop", 1, "1Gi", []trait{linux, tablet}},
	{"rhel.8", "Red Hat Enterprise Linux 8", 1, "1.5Gi", []trait{linux}},
	{"rhel.8.desktop", "Red Hat Enterprise Linux 8 Desktop", 1, "1.5Gi", []trait{linux, tablet}},
	{"rhel.8.dpdk", "Red Hat Enterprise Linux 8 DPDK", dpdkCPUs, "1.5Gi", []trait{linux, multiQueue, spread(4)}},
	{"rhel.9", "Red Hat Enterprise Linux 9 (amd64)", 1, "1.5Gi", secureLinux},
	{"rhel.9.arm64", "Red Hat Enterprise Linux 9 (arm64)", 1, "1.5Gi", []trait{linux, ioThread, only("arm64")}},
	{"rhel.9.desktop", "Red Hat Enterprise Linux 9 Desktop (amd64)", 1, "1.5Gi", and(secureLinux, tablet)},
	{"rhel.9.dpdk", "Red Hat Enterprise Linux 9 DPDK (amd64)", dpdkCPUs, "1.5Gi", and(secureLinux, multiQueue, spread(4))},
	{"rhel.9.realtime", "Red Hat Enterprise Linux 9 Realtime (amd64)", 4, "4Gi", and(secureLinux, multiQueue, spread(0), bare)},
	{"rhel.9.s390x", "Red Hat Enterprise Linux 9 (s390x)", 1, "1.5Gi", []trait{linux, ioThread, only("s390x")}},
	{"sles", "SUSE Linux Enterprise Server", 1, "2Gi", []trait{linux}},
	{"ubuntu", "Ubuntu", 1, "2Gi", []trait{linux}},
	{"windows.10", "Windows 10", 1, "2Gi", and(windowsSata, secureBoot)},
	{"windows.10.virtio", "Windows 10 (virtio)", 1, "2Gi", and(windowsPV, secureBoot)},
	{"windows.11", "Windows 11", 2, "4Gi", and(windowsSata, secureBoot, tpm)},
	{"windows.11.virtio", "Windows 11 (virtio)", 2, "4Gi", and(windowsPV, secureBoot, tpm)},
	{"windows.2k12", "Windows Server 2012 and 2012 R2", 1, "512Mi", windowsSata},
	{"windows.2k12.virtio", "Windows Server 2012 and 2012 R2 (virtio)", 1, "512Mi", windowsPV},
	{"windows.2k16", "Windows Server 2016", 1, "2Gi", and(windowsSata, secureBoot)},
	{"windows.2k16.virtio", "Windows Server 2016 (virtio)", 1, "2Gi", and(windowsPV, secureBoot)},
	{"windows.2k19", "Windows Server 2019", 1, "2Gi", and(windowsSata, secureBoot)},
	{"windows.2k19.virtio", "Windows Server 2019 (virtio)", 1, "2Gi", and(windowsPV, secureBoot)},
	{"windows.2k22", "Windows Server 2022", 1, "2Gi", and(windowsSata, secureBoot, tpm)},
	{"windows.2k22.virtio", "Windows Server 2022 (virtio)", 1, "2Gi", and(windowsPV, secureBoot, tpm)},
	{"windows.2k25", "Windows Server 2025", 1, "2Gi", and(windowsSata, secureBoot, tpm)},
	{"windows.2k25.virtio", "Windows Server 2025 (virtio)", 1, "2Gi", and(windowsPV, secureBoot, tpm)},
	{"windows.2k3", "Windows Server 2003", 1, "256Mi", and(windowsSata, nic("rtl8139"), noHole64)},
	{"windows.2k8", "Windows Server 2008 and 2008 R2", 1, "512Mi", and(windowsSata, nic("e1000"))},
	{"windows.2k8.virtio", "Windows Server 2008 and 2008 R2 (virtio)", 1, "512Mi", windowsPV},
	{"windows.7", "Windows 7", 1, "2Gi", windowsSata},
	{"windows.7.virtio", "Windows 7 (virtio)", 1, "2Gi", windowsPV},
	{"windows.xp", "Windows XP", 1, "128Mi", and(windowsSata, noHole64)},
}

// and does not change the list that it extends.
func and(traits []trait, more ...trait) []trait { return slices.Concat(traits, more) }

func system(name string) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) {
		spec.Annotations = map[string]string{OSAnnotation: name}
	}
}

func disk(bus v1.DiskBus) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) { spec.Devices.PreferredDiskBus = bus }
}

func nic(model string) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) { spec.Devices.PreferredInterfaceModel = model }
}

func video(kind string) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) { spec.Devices.PreferredVideoType = new(kind) }
}

func linux(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	system(osLinux)(spec)
	disk(v1.DiskBusVirtio)(spec)
	nic(v1.VirtIO)(spec)
	spec.Devices.PreferredRng = &v1.Rng{}
}

func ioThread(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredDiskDedicatedIoThread = new(true)
}

func multiQueue(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredNetworkInterfaceMultiQueue = new(true)
}

// transitional is for drivers older than virtio 1.0.
func transitional(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredUseVirtioTransitional = new(true)
}

func tablet(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredAutoattachInputDevice = new(true)
	spec.Devices.PreferredInputBus, spec.Devices.PreferredInputType = v1.InputBusVirtio, v1.InputTypeTablet
}

// bare omits devices that disturb a realtime guest.
func bare(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredAutoattachGraphicsDevice = new(false)
	spec.Devices.PreferredAutoattachMemBalloon = new(false)
	spec.Devices.PreferredAutoattachSerialConsole = new(true)
}

// ratio is the cores per socket, 0 for the default.
func spread(ratio uint32) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) {
		options := &instancetypev1.SpreadOptions{Across: new(instancetypev1.SpreadAcrossSocketsCoresThreads)}
		if ratio > 0 {
			options.Ratio = new(ratio)
		}
		spec.CPU = &instancetypev1.CPUPreferences{PreferredCPUTopology: new(instancetypev1.Spread), SpreadOptions: options}
	}
}

func efi(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Firmware = &instancetypev1.FirmwarePreferences{PreferredEfi: &v1.EFI{SecureBoot: new(false)}}
}

// System management mode keeps the guest from the firmware's variables.
func secureBoot(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Firmware = &instancetypev1.FirmwarePreferences{PreferredEfi: &v1.EFI{SecureBoot: new(true)}}
	if spec.Features == nil {
		spec.Features = &instancetypev1.FeaturePreferences{}
	}
	spec.Features.PreferredSmm = &v1.FeatureState{}
}

// A persistent TPM needs persistent firmware variables. It comes after secureBoot.
func tpm(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Devices.PreferredTPM = &v1.TPMDevice{Persistent: new(true)}
	spec.Firmware.PreferredEfi.Persistent = new(true)
}

// only is for a system that is built for one architecture.
func only(architecture string) trait {
	return func(spec *instancetypev1.VirtualMachinePreferenceSpec) {
		spec.PreferredArchitecture = new(architecture)
		spec.Requirements = &instancetypev1.PreferenceRequirements{Architecture: new(architecture)}
	}
}

// noHole64 is for systems that fail at PCI addresses above 4 GiB.
func noHole64(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	spec.Annotations[v1.DisablePCIHole64] = "true"
}

func windows(spec *instancetypev1.VirtualMachinePreferenceSpec) {
	system(osWindows)(spec)
	spec.Clock = &instancetypev1.ClockPreferences{
		PreferredClockOffset: &v1.ClockOffset{UTC: &v1.ClockOffsetUTC{}},
		PreferredTimer: &v1.Timer{
			HPET:   &v1.HPETTimer{Enabled: new(false)},
			PIT:    &v1.PITTimer{TickPolicy: v1.PITTickPolicyDelay},
			RTC:    &v1.RTCTimer{TickPolicy: v1.RTCTickPolicyCatchup},
			Hyperv: &v1.HypervTimer{},
		},
	}
	spec.CPU = &instancetypev1.CPUPreferences{PreferredCPUTopology: new(instancetypev1.Sockets)}
	spec.Devices.PreferredAutoattachInputDevice = new(true)
	on := func() *v1.FeatureState { return &v1.FeatureState{} }
	spec.Features = &instancetypev1.FeaturePreferences{
		PreferredAcpi: on(), PreferredApic: &v1.FeatureAPIC{},
		PreferredHyperv: &v1.FeatureHyperv{
			Relaxed: on(), VAPIC: on(), VPIndex: on(), Runtime: on(), SyNIC: on(), Reset: on(), Frequencies: on(),
			Reenlightenment: on(), TLBFlush: &v1.TLBFlush{}, IPI: on(),
			Spinlocks:  &v1.FeatureSpinlocks{Retries: new(uint32(8191))},
			SyNICTimer: &v1.SyNICTimer{Direct: on()},
		},
	}
	spec.PreferredTerminationGracePeriodSeconds = new(int64(3600))
}

// Preferences returns new objects.
func Preferences() []*instancetypev1.VirtualMachineClusterPreference {
	out := make([]*instancetypev1.VirtualMachineClusterPreference, 0, len(allPreferences))
	for _, p := range allPreferences {
		out = append(out, p.object())
	}
	return out
}

func (p preference) object() *instancetypev1.VirtualMachineClusterPreference {
	object := &instancetypev1.VirtualMachineClusterPreference{
		TypeMeta:   metav1.TypeMeta{APIVersion: instancetypev1.SchemeGroupVersion.String(), Kind: "VirtualMachineClusterPreference"},
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Annotations: map[string]string{displayAnnotation: p.display}, Labels: map[string]string{}},
	}
	spec := &object.Spec
	spec.Devices = &instancetypev1.DevicePreferences{}
	for _, apply := range p.with {
		apply(spec)
	}
	if p.cpus > 0 {
		if spec.Requirements == nil {
			spec.Requirements = &instancetypev1.PreferenceRequirements{}
		}
		spec.Requirements.CPU = &instancetypev1.CPUPreferenceRequirement{Guest: p.cpus}
		spec.Requirements.Memory = &instancetypev1.MemoryPreferenceRequirement{Guest: resource.MustParse(p.memory)}
		addLabel(object.Labels, "required-cpu", strconv.FormatUint(uint64(p.cpus), 10))
		addLabel(object.Labels, "required-memory", p.memory)
	}
	addLabel(object.Labels, "os-type", spec.Annotations[OSAnnotation])
	if architecture := spec.PreferredArchitecture; architecture != nil {
		for _, label := range []string{"arch", "preferred-architecture", "required-architecture"} {
			addLabel(object.Labels, label, *architecture)
		}
	}
	seal(object, &object.Spec)
	return object
}
