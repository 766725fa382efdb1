package supported

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// These tables, and those of CDI's in cdiannotations.go, list the annotations that users set, by the kind of
// object. A test compares them with the constants of the API modules. Other annotations have no effect.

// vmiAnnotationTable is for VirtualMachineInstances and templates of them.
var vmiAnnotationTable = table{
	v1.IgnitionAnnotation: noted("Ignition's configuration, which the guest finds as `opt/com.coreos/config` of QEMU's firmware configuration; " + fromStart),
	v1.DisablePCIHole64:   noted("`true` leaves the guest no PCI addresses above 4 GiB; " + fromStart),
	v1.FreePageReportingDisabledAnnotation: noted("`true` has the guest keep the pages that it does not use, instead of giving them back; " +
		fromStart),
	v1.AllowPodBridgeNetworkLiveMigrationAnnotation: yes(),
	v1.DeprecatedNonRootVMIAnnotation:               noted("without effect: QEMU never runs as root"),
	layout.SkipBackupHooksAnnotation:                noted("`true` leaves launcher pods without hooks for backup tools, from the next pod on"),

	layout.HookSidecarsAnnotation:   no("a hook changes the definition that libvirt has of a guest, and there is no libvirt here; use the spec's fields"),
	v1.PlacePCIDevicesOnRootComplex: off().because("disks and interfaces are behind PCI ports, where they can be plugged; `pciAddress` chooses the port"),
	v1.CreateMigrationTarget:        no("guests migrate within their cluster; create a VirtualMachineInstanceMigration"),
	v1.PauseGuestAgentProbesAnnotation: off().withOnly("false", "False", "FALSE", "f", "F", "0").because("probes are not paused, and one that fails can end the guest; " +
		"leave guestAgentPing out where the agent may be away"),

	v1.MemfdMemoryBackend:                idle("nothing here needs a guest's memory to be a memfd"),
	v1.CustomLibvirtLogFiltersAnnotation: idle("there is no libvirt here; the label `debugLogs` has QEMU log"),
	v1.KeepLauncherAfterFailureAnnotation: idle("a launcher pod ends with its guest; the VMI and virt-handler's log tell why").
		withOnly("false"),
	layout.LeaveLauncherPodAnnotation: idle("a launcher pod ends with its guest; the VMI and virt-handler's log tell why").
		exceptThat("with startStrategy Maintenance, which asks for the contrary, it is refused").withOnly("false"),

	v1.FuncTestForceLauncherMigrationFailureAnnotation:       idle(testsOnly),
	v1.FuncTestBlockLauncherPrepareMigrationTargetAnnotation: idle(testsOnly),
	v1.FuncTestLauncherFailFastAnnotation:                    idle(testsOnly),
	v1.FuncTestMemoryHotplugFailAnnotation:                   idle(testsOnly),
	v1.WorkloadUpdateMigrationAbortionAnnotation:             idle(testsOnly),
}

var vmAnnotationTable = table{
	v1.ImmediateDataVolumeCreation:   noted("`false` has the DataVolumes of a VM that is off made when it first starts"),
	layout.SkipBackupHooksAnnotation: idle("it is read of the VMI; set it in spec.template.metadata.annotations"),
	v1.RestoreRunStrategy:            idle("guests migrate within their cluster"),
}

var migrationAnnotationTable = table{
	v1.MigrationUnschedulablePodTimeoutSecondsAnnotation: noted("seconds until a migration is given up whose target pod fits no node; 300 if not set, and at most"),
	v1.MigrationPendingPodTimeoutSecondsAnnotation:       noted("seconds until a migration is given up whose target pod does not run; 900 if not set, and at most"),
	v1.MigrationUtilityVolumesTimeoutSecondsAnnotation:   idle("there are no utility volumes"),
	v1.FuncTestMigrationTargetImageOverrideAnnotation:    idle(testsOnly),
	v1.FuncTestForceIgnoreMigrationBackoffAnnotation:     idle(testsOnly),
}

var kubeVirtAnnotationTable = table{
	v1.VGADisplayForEFIGuestsX86Annotation: off().because("guests with UEFI have a bochs display; name `domain.devices.video.type: vga` in the VMs that need one"),
	v1.EmulatorThreadCompleteToEvenParity:  noted("guests with `isolateEmulatorThread` have an even number of [CPUs of their own](cpu-pinning.md)"),
	layout.SkipBackupHooksAnnotation:       idle("it is read of each VMI; set it in the templates of VMs"),
}

// nodeTable documents labels and annotations of nodes and namespaces, which admission does not see.
var nodeTable = table{
	v1.LabellerSkipNodeAnnotation: no("of a node; virt-handler labels every node that it runs on"),
	v1.KSMPagesBoostOverride:      no(leavesKSM),
	v1.KSMPagesDecayOverride:      no(leavesKSM),
	v1.KSMPagesMinOverride:        no(leavesKSM),
	v1.KSMPagesMaxOverride:        no(leavesKSM),
	v1.KSMPagesInitOverride:       no(leavesKSM),
	v1.KSMSleepMsBaselineOverride: no(leavesKSM),
	v1.KSMFreePercentOverride:     no(leavesKSM),
	v1.AutoMemoryLimitsRatioLabel: noted("of a namespace: how many times the requested memory the limit is that a pod of a VM gets where a quota or a limit range asks for one; 2 if not set"),
}

const (
	fromStart = "a running guest keeps what it has started with"
	testsOnly = "it is for KubeVirt's own tests, and Drydock has no counterpart of it"
	leavesKSM = "of a node; virt-handler leaves a node's KSM as it is"
)

// VMIAnnotations returns errors for the unsupported annotations, at path, of a VMI or a template.
func VMIAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return annotated(vmiAnnotationTable, annotations, path).errs
}

// VMIAnnotationWarnings returns warnings for the annotations of a VMI or a template that have no effect.
func VMIAnnotationWarnings(annotations map[string]string, path *field.Path) []string {
	return annotated(vmiAnnotationTable, annotations, path).warnings
}

// VMAnnotationWarnings returns warnings for a VirtualMachine's own annotations. None of those is refused.
func VMAnnotationWarnings(annotations map[string]string, path *field.Path) []string {
	return annotated(vmAnnotationTable, annotations, path).warnings
}

// MigrationAnnotationWarnings returns warnings for a VirtualMachineInstanceMigration's annotations. None of
// those is refused.
func MigrationAnnotationWarnings(annotations map[string]string, path *field.Path) []string {
	return annotated(migrationAnnotationTable, annotations, path).warnings
}

// KubeVirtAnnotations returns errors for the unsupported annotations of the KubeVirt object.
func KubeVirtAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return annotated(kubeVirtAnnotationTable, annotations, path).errs
}

// KubeVirtAnnotationWarnings returns warnings for the annotations of the KubeVirt object that have no effect.
func KubeVirtAnnotationWarnings(annotations map[string]string, path *field.Path) []string {
	return annotated(kubeVirtAnnotationTable, annotations, path).warnings
}

// annotated judges annotations in the order of their names. An empty value counts as set, since the presence of
// some is meaningful.
func annotated(t table, annotations map[string]string, path *field.Path) *walk {
	w := &walk{table: t}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if e, found := t[name]; found {
			w.judgeSet(e, reflect.ValueOf(annotations[name]), path.Key(name))
		}
	}
	return w
}
