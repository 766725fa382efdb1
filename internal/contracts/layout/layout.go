// Package layout owns the names that processes share: a launcher pod's container, volumes, paths and sockets, labels,
// annotations, devices, and object names that follow from another object's. A name that two packages need must be here and
// nowhere else, unless the API's modules have it. It must import the standard library only: virt-launcher links it.
package layout

import (
	"path"
	"strconv"
)

// Values of the label kubevirt.io on the pods of a guest.
const (
	LauncherApp   = "virt-launcher"
	AttachmentApp = "hotplug-disk"
)

// LauncherPrefix starts the names of launcher pods.
const LauncherPrefix = "virt-launcher-"

// ComputeContainer is the launcher pod's container with virt-launcher and QEMU, and its only one. If the guest's serial
// console is logged, there is a sidecar.
const (
	ComputeContainer = "compute"
	// ConsoleLogContainer writes the guest's serial console to its standard output.
	ConsoleLogContainer = "guest-console-log"
	// QEMUUser is the uid and gid of virt-launcher and QEMU, as in upstream's images, so that it owns disks made there.
	QEMUUser = 107
)

// Volumes of a launcher pod.
const (
	PrivateVolume    = "private"         // an emptyDir for sockets, at PrivateDir
	EphemeralVolume  = "ephemeral-disks" // an emptyDir for overlays, empty disks and ISO images, at EphemeralDir
	HugepagesVolume  = "hugepages"       // an emptyDir of medium HugePages, if requested
	KernelBootVolume = "kernel-boot"     // the image volume of spec.domain.firmware.kernelBoot
	ConsoleLogVolume = "console-log"     // an emptyDir of medium Memory, if the serial console is logged, at ConsoleLogDir
	StateVolume      = "vm-state"        // the claim of a VM's persistent state, if any, at StateDir
	// VolumePrefix precedes a VMI volume's name if the result is a valid label, so that it can't collide with the others.
	VolumePrefix = "vol-"
)

// Paths inside the launcher's container.
const (
	PrivateDir    = "/var/run/kubevirt"
	EphemeralDir  = "/var/run/kubevirt-ephemeral-disks"
	HugepagesDir  = "/dev/hugepages"
	KernelBootDir = "/var/run/kubevirt-kernel-boot"
	StateDir      = "/var/run/kubevirt-state"
	ConsoleLogDir = "/var/run/drydock-console-log"

	VolumeDevicesDir = "/dev/kubevirt-volumes"

	volumesDir = "/var/run/kubevirt-volumes"

	accessCredentialsDir = "/var/run/kubevirt-access-credentials"
)

// AgentPort is the ID of the guest agent's virtio-serial port.
const AgentPort = "agent0"

// AgentChardev is the label of that port's chardev.
const AgentChardev = "char-agent0"

// Socket names in PrivateDir.
const (
	LauncherSocket  = "launcher.sock"
	FreezerSocket   = "freezer.sock" // for virt-freezer
	ProbeSocket     = "probe.sock"   // for the kubelet's probes
	StateSocket     = "state.sock"   // for diagnoses
	QMPSocket       = "qmp.sock"     // virt-handler's monitor; virt-launcher's is on an inherited file descriptor
	VNCSocket       = "vnc.sock"
	SerialSocket    = "serial0.sock"   // the serial console ttyS0
	AgentSocket     = "agent.sock"     // the guest agent's virtio-serial port
	MetricsSocket   = "metrics.sock"   // the virtio-serial port for downward metrics
	MigrationSocket = "migration.sock" // virt-handler listens at the source, QEMU at the target
	TPMSocket       = "tpm.sock"       // QEMU's control connection to the TPM emulator
	DisksSocket     = "disks.sock"     // MigrationSocket's counterpart for copied disks (NBD)
)

// ConsoleLogPipe is the FIFO in ConsoleLogDir from virt-launcher to the console's container.
const ConsoleLogPipe = "ttyS0"

// ConsoleLogDescriptor is QEMU's inherited pipe for the output of the serial console.
const ConsoleLogDescriptor = 4

// Files in a volume or in EphemeralDir.
const (
	DiskImage        = "disk.img" // the raw image in a filesystem PVC
	ContainerDiskDir = "disk"     // in a containerDisk's image, with its one disk file
	StateFolder      = "vm"       // in the claim of a VM's state, only for QEMU's user
	NVRAM            = "nvram.fd" // the UEFI variables in StateFolder
	// FirstTPM is the folder in StateFolder with the TPM's state, until the guest migrates: a TPM that waits for its guest
	// can't use the folder of the present one. CurrentTPM is the file with the name of the guest's TPM folder, FirstTPM
	// without it (decision 442).
	FirstTPM   = "tpm"
	CurrentTPM = "current-tpm"
)

// Executables in the launcher's image.
const (
	LauncherBinary = "/usr/bin/virt-launcher"
	CatBinary      = "/usr/bin/cat"
	// SmallHeap is an environment variable of virt-launcher's image. It saves 2 MiB where the kernel gives every program
	// huge pages, as Debian's does.
	SmallHeap     = "GODEBUG=disablethp=1"
	FreezerBinary = "/usr/bin/virt-freezer" // virt-launcher, which freezes the guest of its pod
	QEMUBinary    = "/usr/bin/qemu-system-x86_64"
	QEMUImgBinary = "/usr/bin/qemu-img"
	TPMBinary     = "/usr/bin/swtpm"
	ShareBinary   = "/usr/libexec/virtiofsd"
)

// ArgumentsVerb is virt-launcher's verb, for a user who may exec in the pod, that prints the arguments of its QEMU, each as a
// line of JSON.
const ArgumentsVerb = "arguments"

// StateVerb is virt-launcher's verb, for the same users, that prints the state of its QEMU as JSON (launch.Report).
const StateVerb = "state"

// UEFI firmware in the launcher's image, and the template of its variables.
const (
	UEFICode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	UEFIVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// PodVolume returns the pod volume of a VMI volume.
func PodVolume(volume string) string { return volumeName(VolumePrefix, volume) }

// VolumeDir returns the mount path of a VMI volume with a file system (PVC, containerDisk, hostDisk, configMap …).
func VolumeDir(volume string) string { return path.Join(volumesDir, volume) }

// VolumeDevice returns the path of a block PVC.
func VolumeDevice(volume string) string { return path.Join(VolumeDevicesDir, volume) }

// OverlayFile returns the qcow2 file of an emptyDisk, or for the guest's writes to a volume that must not change
// (containerDisk, ephemeral).
func OverlayFile(volume string) string { return path.Join(EphemeralDir, volume+".qcow2") }

// ISOFile returns the image that virt-handler creates of a volume (cloud-init, configMap, secret …).
func ISOFile(volume string) string { return path.Join(EphemeralDir, volume+".iso") }

// MetricsFile returns the disk of downward metrics.
func MetricsFile(volume string) string { return path.Join(EphemeralDir, volume+".metrics") }

// IgnitionFile returns the file of the Ignition configuration.
func IgnitionFile() string { return path.Join(EphemeralDir, "ignition.json") }

// NVRAMFile returns the file of UEFI variables that end with the pod.
func NVRAMFile() string { return path.Join(EphemeralDir, NVRAM) }

// KeptNVRAMFile returns the file of UEFI variables that outlive the pod.
func KeptNVRAMFile() string { return path.Join(StateDir, StateFolder, NVRAM) }

// TPMDir returns the folder of a TPM's state that ends with the pod.
func TPMDir() string { return path.Join(EphemeralDir, "tpm") }

// KeptTPMDir returns the named folder of a TPM's state that outlives the pod.
func KeptTPMDir(name string) string { return path.Join(StateDir, StateFolder, name) }

// IncomingTPM names the folder of an incoming migration's TPM.
func IncomingTPM(migration string) string { return FirstTPM + "-" + migration }

// ShareSocket returns the socket, in PrivateDir, of the program that serves a folder to the guest.
func ShareSocket(volume string) string { return "share-" + volume + ".sock" }

// Socket returns the path of a socket in the container.
func Socket(name string) string { return path.Join(PrivateDir, name) }

// UserDataDir returns the mount path of a cloud-init volume's Secret in userDataSecretRef.
func UserDataDir(volume string) string { return path.Join(volumesDir, volume+"-userdata") }

// NetworkDataDir is UserDataDir for networkDataSecretRef.
func NetworkDataDir(volume string) string { return path.Join(volumesDir, volume+"-networkdata") }

// AccessCredentialVolume returns the pod volume of the Secret of the VMI's n-th access credential.
func AccessCredentialVolume(n int) string { return "access-" + strconv.Itoa(n) }

// AccessCredentialDir returns the mount path of that Secret.
func AccessCredentialDir(n int) string { return path.Join(accessCredentialsDir, strconv.Itoa(n)) }

// UserDataVolume returns the pod volume of a cloud-init volume's Secret in userDataSecretRef.
func UserDataVolume(volume string) string { return volumeName("udata-", volume) }

// NetworkDataVolume is UserDataVolume for networkDataSecretRef.
func NetworkDataVolume(volume string) string { return volumeName("ndata-", volume) }

// Labels of a node with its probe's results.
const (
	KVMLabel  = "drydock.dev/kvm"
	TCGLabel  = "drydock.dev/tcg"
	UEFILabel = "drydock.dev/uefi"
)

// QEMULabel of a node is the version of QEMU's package, with _ for characters that a label can't hold.
const QEMULabel = "drydock.dev/qemu"

// KVMUsable is the value of KVMLabel on a node whose guests run with KVM. On all other nodes they are emulated.
const KVMUsable = "usable"

// SELinuxLabel of a node, with the value SELinuxEnabled, means that virt-handler reports its launchers' SELinux contexts.
const (
	SELinuxLabel   = "drydock.dev/selinux"
	SELinuxEnabled = "enabled"
)

// LauncherSeccompProfile permits userfaultfd to a launcher. It is relative to the kubelet's folder SeccompDir, as in a
// pod. Nodes with PostCopyLabel have it (decision 363).
const (
	LauncherSeccompProfile = "drydock/launcher-userfaultfd.json"
	SeccompDir             = "seccomp"
)

// The value of PostCopyLabel is whether the kernel permits userfaultfd to a launcher.
const (
	PostCopyLabel    = "drydock.dev/post-copy"
	PostCopyUsable   = "usable"
	PostCopyUnusable = "unusable"
)

// Devices of a launcher pod, with the node's names.
const (
	KVMDevice      = "/dev/kvm"
	TUNDevice      = "/dev/net/tun"
	VhostNetDevice = "/dev/vhost-net"
	// VFIODir has a device for each group of passed-through devices of the node, and one named vfio for all.
	VFIODir = "/dev/vfio"
)

// TerminationLog is the kubelet's default path of a container's termination message.
const TerminationLog = "/dev/termination-log"

// MigrationWaiting is the condition of a waiting migration, with the reason.
const MigrationWaiting = "drydock.dev/Waiting"

// MigrationProgress is the condition of a migrating VMI.
const MigrationProgress = "drydock.dev/MigrationProgress"

// Accelerated is the condition of a VMI whose guest runs: True with KVM, False if it is emulated.
const Accelerated = "drydock.dev/Accelerated"

// HookSidecarsAnnotation names containers that change a guest's definition. Drydock refuses it.
const HookSidecarsAnnotation = "hooks.kubevirt.io/hookSidecars"

// SkipBackupHooksAnnotation omits the launcher pod's hooks by which backup tools freeze the guest.
const SkipBackupHooksAnnotation = "kubevirt.io/skip-backup-hooks"

// LeaveLauncherPodAnnotation requests a pod that outlives QEMU, which Drydock does not support.
const LeaveLauncherPodAnnotation = "kubevirt.io/leave-launcher-pod-after-qemu-exit"

// DevelLauncherImage is made by `make images`.
const DevelLauncherImage = "drydock.dev/virt-launcher:devel"

// Device plugin resources.
const (
	ResourceKVM      = "devices.kubevirt.io/kvm"
	ResourceTUN      = "devices.kubevirt.io/tun"
	ResourceVhostNet = "devices.kubevirt.io/vhost-net"
)
