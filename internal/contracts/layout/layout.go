// Package layout names the places of a launcher pod: its container, volumes,
// mount paths and sockets. virt-controller renders the pod with these names,
// the machine model refers to the paths, virt-handler finds its way into the
// pod by them. It also has the other names by which components know each other's
// objects: labels, annotations, devices, and how an object's name is made of
// another's. A name that two packages need lives here and nowhere else, unless the
// API's own modules have it.
//
// It must not import anything but the standard library: virt-launcher links it.
package layout

import (
	"path"
	"strconv"
)

// Values of the label kubevirt.io (AppLabel of the API's module) on the pods of a guest.
const (
	LauncherApp   = "virt-launcher"
	AttachmentApp = "hotplug-disk"
)

// LauncherPrefix begins the names of launcher pods.
const LauncherPrefix = "virt-launcher-"

// The launcher pod's one container, and the user that QEMU runs as.
const (
	ComputeContainer = "compute"
	// QEMUUser is uid and gid of virt-launcher and QEMU, as in upstream's
	// images, so that disks made there belong to it.
	QEMUUser = 107
)

// Volumes that every launcher pod has. Their names cannot collide with a VMI
// volume's, which get the prefix VolumePrefix.
const (
	// PrivateVolume is an emptyDir for sockets; mounted at PrivateDir.
	PrivateVolume = "private"
	// EphemeralVolume is an emptyDir for overlays, empty disks and ISO images;
	// mounted at EphemeralDir.
	EphemeralVolume = "ephemeral-disks"
	// HugepagesVolume is an emptyDir of medium HugePages, where asked for.
	HugepagesVolume = "hugepages"
	// KernelBootVolume is the image volume of spec.domain.firmware.kernelBoot.
	KernelBootVolume = "kernel-boot"
	// StateVolume is the claim of what outlives a VM's guests, where there is any; mounted at StateDir.
	StateVolume = "vm-state"
	// VolumePrefix comes before a VMI volume's name in the pod's volumes, if that leaves a label.
	VolumePrefix = "vol-"
)

// Paths inside the launcher's container.
const (
	PrivateDir    = "/var/run/kubevirt"
	EphemeralDir  = "/var/run/kubevirt-ephemeral-disks"
	HugepagesDir  = "/dev/hugepages"
	KernelBootDir = "/var/run/kubevirt-kernel-boot"
	StateDir      = "/var/run/kubevirt-state"

	// VolumeDevicesDir has the block devices of the VMI's volumes.
	VolumeDevicesDir = "/dev/kubevirt-volumes"

	volumesDir = "/var/run/kubevirt-volumes"

	accessCredentialsDir = "/var/run/kubevirt-access-credentials"
)

// AgentPort is the id of the guest agent's virtio-serial port in QEMU.
const AgentPort = "agent0"

// AgentChardev is the label of what the port is connected to.
const AgentChardev = "char-agent0"

// Socket names in PrivateDir.
const (
	LauncherSocket = "launcher.sock"
	// FreezerSocket is virt-freezer's way to virt-launcher.
	FreezerSocket = "freezer.sock"
	// QMPSocket is virt-handler's monitor; virt-launcher has one of its own on
	// an inherited file descriptor.
	QMPSocket = "qmp.sock"
	VNCSocket = "vnc.sock"
	// SerialSocket is the serial console ttyS0.
	SerialSocket = "serial0.sock"
	// AgentSocket is the guest agent's virtio-serial port.
	AgentSocket = "agent.sock"
	// MetricsSocket is the virtio-serial port on which the guest asks for downward metrics.
	MetricsSocket = "metrics.sock"
	// MigrationSocket is where a migration's stream passes between QEMU and virt-handler:
	// virt-handler listens at the source, QEMU at the target.
	MigrationSocket = "migration.sock"
	// TPMSocket is where QEMU controls the process that emulates the guest's TPM.
	TPMSocket = "tpm.sock"
	// DisksSocket is the same for the disks that are copied in a migration (NBD).
	DisksSocket = "disks.sock"
)

// Files in a volume or in EphemeralDir.
const (
	// DiskImage is the raw image in a filesystem PVC.
	DiskImage = "disk.img"
	// ContainerDiskDir is the folder of a containerDisk's image that holds its
	// one disk file.
	ContainerDiskDir = "disk"
	// StateFolder is the folder in the claim of a VM's state that has all of it, for QEMU's user alone, and
	// NVRAM the UEFI variables in it.
	StateFolder = "vm"
	NVRAM       = "nvram.fd"
	// FirstTPM is the folder in it of what the TPM knows, until the guest migrates: a TPM that waits for its guest
	// can't have the folder of the one that the guest uses. CurrentTPM is the file that names the folder of
	// the guest's TPM; without it that is FirstTPM (decision 442).
	FirstTPM   = "tpm"
	CurrentTPM = "current-tpm"
)

// Executables in the launcher's image.
const (
	LauncherBinary = "/usr/bin/virt-launcher"
	// FreezerBinary is virt-launcher, too: it freezes the guest of the pod that it is run in.
	FreezerBinary = "/usr/bin/virt-freezer"
	QEMUBinary    = "/usr/bin/qemu-system-x86_64"
	QEMUImgBinary = "/usr/bin/qemu-img"
	TPMBinary     = "/usr/bin/swtpm"
)

// UEFI firmware in the launcher's image, and the template of its variables.
const (
	UEFICode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	UEFIVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// PodVolume is the pod volume of the VMI volume with the given name.
func PodVolume(volume string) string { return volumeName(VolumePrefix, volume) }

// VolumeDir is where a VMI volume with a file system (PVC, containerDisk,
// hostDisk, configMap, secret …) is mounted in the container.
func VolumeDir(volume string) string { return path.Join(volumesDir, volume) }

// VolumeDevice is where a block PVC is in the container.
func VolumeDevice(volume string) string { return path.Join(VolumeDevicesDir, volume) }

// OverlayFile is the qcow2 file that takes the guest's writes to a volume
// that must not change (containerDisk, ephemeral), or all of an emptyDisk.
func OverlayFile(volume string) string { return path.Join(EphemeralDir, volume+".qcow2") }

// ISOFile is the image that virt-handler makes of a cloud-init, configMap,
// secret, downwardAPI, serviceAccount or sysprep volume.
func ISOFile(volume string) string { return path.Join(EphemeralDir, volume+".iso") }

// MetricsFile is the disk by which the guest is told figures of its host.
func MetricsFile(volume string) string { return path.Join(EphemeralDir, volume+".metrics") }

// IgnitionFile holds the guest's Ignition configuration.
func IgnitionFile() string { return path.Join(EphemeralDir, "ignition.json") }

// NVRAMFile holds the guest's UEFI variables, while the pod lives.
func NVRAMFile() string { return path.Join(EphemeralDir, NVRAM) }

// KeptNVRAMFile holds the UEFI variables that outlive the pod.
func KeptNVRAMFile() string { return path.Join(StateDir, StateFolder, NVRAM) }

// TPMDir holds what the guest's TPM knows, while the pod lives.
func TPMDir() string { return path.Join(EphemeralDir, "tpm") }

// KeptTPMDir is a folder of what outlives the pod, by its name.
func KeptTPMDir(name string) string { return path.Join(StateDir, StateFolder, name) }

// IncomingTPM names the folder of a TPM whose guest a migration brings.
func IncomingTPM(migration string) string { return FirstTPM + "-" + migration }

// Socket is the path of one of the sockets in the container.
func Socket(name string) string { return path.Join(PrivateDir, name) }

// UserDataDir and NetworkDataDir are where the Secrets that a cloud-init
// volume refers to (userDataSecretRef, networkDataSecretRef) are mounted.
func UserDataDir(volume string) string { return path.Join(volumesDir, volume+"-userdata") }

// NetworkDataDir is UserDataDir for networkDataSecretRef.
func NetworkDataDir(volume string) string { return path.Join(volumesDir, volume+"-networkdata") }

// AccessCredentialVolume is the pod volume of the Secret of the VMI's n-th access credential.
func AccessCredentialVolume(n int) string { return "access-" + strconv.Itoa(n) }

// AccessCredentialDir is where that Secret is mounted.
func AccessCredentialDir(n int) string { return path.Join(accessCredentialsDir, strconv.Itoa(n)) }

// UserDataVolume and NetworkDataVolume are the pod volumes of those Secrets.
func UserDataVolume(volume string) string { return volumeName("udata-", volume) }

// NetworkDataVolume is UserDataVolume for networkDataSecretRef.
func NetworkDataVolume(volume string) string { return volumeName("ndata-", volume) }

// Labels of a node with what its probe found of KVM, of emulation and of UEFI guests.
const (
	KVMLabel  = "drydock.dev/kvm"
	TCGLabel  = "drydock.dev/tcg"
	UEFILabel = "drydock.dev/uefi"
)

// KVMUsable is the value of KVMLabel of a node whose guests run with KVM. Those of every
// other node are emulated.
const KVMUsable = "usable"

// SELinuxLabel of a node, with the value SELinuxEnabled, says that virt-handler reports
// the SELinux contexts of the node's launchers.
const (
	SELinuxLabel   = "drydock.dev/selinux"
	SELinuxEnabled = "enabled"
)

// LauncherSeccompProfile is the profile with which a launcher may call userfaultfd, as a pod names it: below
// the kubelet's folder SeccompDir. Nodes with PostCopyLabel have it (decision 363).
const (
	LauncherSeccompProfile = "drydock/launcher-userfaultfd.json"
	SeccompDir             = "seccomp"
)

// PostCopyLabel of a node says that LauncherSeccompProfile is there, and with its value whether the kernel lets
// a launcher have userfaultfd.
const (
	PostCopyLabel    = "drydock.dev/post-copy"
	PostCopyUsable   = "usable"
	PostCopyUnusable = "unusable"
)

// Devices that a launcher pod is given, by the names that they have on the node as well.
const (
	KVMDevice      = "/dev/kvm"
	TUNDevice      = "/dev/net/tun"
	VhostNetDevice = "/dev/vhost-net"
	// VFIODir has a device for each group of devices of the node that are passed through, and vfio for all.
	VFIODir = "/dev/vfio"
)

// TerminationLog is where the kubelet reads a container's last words, unless a pod
// names another path: none of Drydock's does.
const TerminationLog = "/dev/termination-log"

// MigrationWaiting is the condition of a VirtualMachineInstanceMigration that waits: it says
// for what.
const MigrationWaiting = "drydock.dev/Waiting"

// MigrationProgress is the condition of a VirtualMachineInstance that is migrated: it says how
// far that is.
const MigrationProgress = "drydock.dev/MigrationProgress"

// HookSidecarsAnnotation names containers that change a guest's definition before it starts, which Drydock refuses.
const HookSidecarsAnnotation = "hooks.kubevirt.io/hookSidecars"

// SkipBackupHooksAnnotation keeps a VMI's launcher pod without the hooks by which backup tools freeze its guest.
const SkipBackupHooksAnnotation = "kubevirt.io/skip-backup-hooks"

// LeaveLauncherPodAnnotation asks for a launcher pod that stays when its QEMU has ended, which none does.
const LeaveLauncherPodAnnotation = "kubevirt.io/leave-launcher-pod-after-qemu-exit"

// DevelLauncherImage is the launcher's image as `make images` makes it.
const DevelLauncherImage = "drydock.dev/virt-launcher:devel"

// Device plugin resources.
const (
	ResourceKVM      = "devices.kubevirt.io/kvm"
	ResourceTUN      = "devices.kubevirt.io/tun"
	ResourceVhostNet = "devices.kubevirt.io/vhost-net"
)
