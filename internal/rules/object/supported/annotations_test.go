package supported

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	cdicore "kubevirt.io/containerized-data-importer-api/pkg/apis/core"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// annotationTables are the tables of annotations.
var annotationTables = map[string]table{
	"annotations of a VMI":       vmiAnnotationTable,
	"annotations of a VM":        vmAnnotationTable,
	"annotations of a migration": migrationAnnotationTable,
	"annotations of KubeVirt":    kubeVirtAnnotationTable,
	"annotations of DataVolumes": dataVolumeAnnotationTable,
	"annotations of claims":      claimAnnotationTable,
	"annotations of nodes":       nodeTable,
}

// unnamed are annotations of the tables for which the API modules have no constant.
var unnamed = slices.Concat(
	[]string{layout.HookSidecarsAnnotation, layout.SkipBackupHooksAnnotation, layout.LeaveLauncherPodAnnotation},
	slices.DeleteFunc(slices.Sorted(maps.Keys(dataVolumeAnnotationTable)), func(name string) bool {
		return name == cdiv1.AnnPrePopulated || name == cdiv1.AnnCheckStaticVolume
	}),
	slices.Sorted(maps.Keys(claimAnnotationTable)),
)

// No user sets these names of the API module.
var componentNames = map[string][]string{
	"pods and objects of the installation have them from the components": {
		v1.DomainAnnotation, v1.MigrationJobNameAnnotation, v1.CreatedByLabel, v1.MigrationJobLabel, v1.MigrationNameLabel,
		v1.VirtualMachineInstanceIDLabel, v1.PersistentReservationLabelPrefix, v1.EphemeralProvisioningObject,
		v1.AllowAccessClusterServicesNPLabel, v1.PVCMemoryDumpAnnotation, v1.EphemeralBackupObject, v1.MemoryOverheadAnnotationBytes,
		v1.InstallStrategyVersionAnnotation, v1.InstallStrategyRegistryAnnotation, v1.InstallStrategyIdentifierAnnotation,
		v1.InstallStrategyConfigMapEncoding, v1.InstallStrategyLabel, v1.KubeVirtCustomizeComponentAnnotationHash,
		v1.KubeVirtGenerationAnnotation,
	},
	"VMs, VMIs and migrations have them from the components, as records": {
		v1.ControllerAPILatestVersionObservedAnnotation, v1.ControllerAPIStorageVersionObservedAnnotation,
		v1.NodeNameLabel, v1.MigrationTargetNodeNameLabel, v1.OutdatedLauncherImageLabel, v1.MigrationSelectorLabel,
		v1.EvacuationMigrationAnnotation, v1.WorkloadUpdateMigrationAnnotation, v1.VolumesUpdateMigration, v1.EvictionSourceAnnotation,
		v1.MigrationTransportUnixAnnotation, v1.MigrationTargetReadyTimestamp, v1.QGSSocketPathAnnotation,
		v1.PciTopologyVersionAnnotation, v1.PciInterfaceSlotCountAnnotation,
		v1.InstancetypeAnnotation, v1.ClusterInstancetypeAnnotation, v1.PreferenceAnnotation, v1.ClusterPreferenceAnnotation,
		v1.VirtualMachinePoolRevisionName, v1.VirtualMachineGenerationAnnotation,
		v1.VirtualMachinePodCPULimitsLabel, v1.VirtualMachinePodMemoryRequestsLabel, v1.MemoryHotplugOverheadRatioLabel,
	},
	"ControllerRevisions of instance types have them from virt-controller": {
		instancetype.ControllerRevisionObjectGenerationLabel, instancetype.ControllerRevisionObjectKindLabel,
		instancetype.ControllerRevisionObjectNameLabel, instancetype.ControllerRevisionObjectUIDLabel,
		instancetype.ControllerRevisionObjectVersionLabel,
	},
	"nodes have them from virt-handler; users select nodes by them": {
		v1.NodeSchedulable, v1.VirtHandlerHeartbeat, v1.CPUManager, v1.CPUFeatureLabel, v1.CPUModelLabel, v1.SupportedHostModelMigrationCPU,
		v1.CPUTimerLabel, v1.HypervLabel, v1.CPUModelVendorLabel, v1.SupportedMachineTypeLabel, v1.HostModelCPULabel,
		v1.HostModelRequiredFeaturesLabel, v1.NodeHostModelIsObsoleteLabel, v1.RealtimeLabel, v1.SEVLabel, v1.SEVESLabel,
		v1.SecureExecutionLabel, v1.SEVSNPLabel, v1.TDXLabel, v1.VMArchLabel, v1.KSMEnabledLabel, v1.KSMHandlerManagedAnnotation,
	},
	"finalizers and conditions, which are no annotations": {
		v1.VirtOperatorComponentFinalizer, v1.VirtualMachineInstanceFinalizer, v1.VirtualMachineControllerFinalizer,
		v1.VirtualMachineInstanceMigrationFinalizer, poolv1beta1.VirtualMachinePoolControllerFinalizer, string(v1.VirtualMachineUnpaused),
	},
	"labels that users set to find their objects, and that change none": {
		v1.VirtualMachineLabel, v1.DeprecatedVirtualMachineNameLabel,
	},
	"labels of claims, of which the tables say at inferFromVolume that they are served": {
		instancetype.DefaultInstancetypeLabel, instancetype.DefaultInstancetypeKindLabel,
		instancetype.DefaultPreferenceLabel, instancetype.DefaultPreferenceKindLabel,
	},
}

func TestTablesHoldEveryAnnotationThatUsersSet(t *testing.T) {
	inTable, byComponents := map[string]bool{}, map[string]bool{}
	for _, table := range annotationTables {
		for name := range table {
			inTable[name] = true
		}
	}
	for _, group := range componentNames {
		for _, name := range group {
			byComponents[name] = true
		}
	}
	constants := apiNames(t)
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		switch {
		case inTable[name] && byComponents[name]:
			t.Errorf("%s is in a table, and among the names that no user sets", name)
		case !inTable[name] && !byComponents[name]:
			t.Errorf("the API has %s (%s): say in a table what it means here, or name it among those that no user sets", constants[name], name)
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(inTable)), slices.Sorted(maps.Keys(byComponents))) {
		if constants[name] == "" && !slices.Contains(unnamed, name) {
			t.Errorf("%s is listed, and no constant of the API has this value", name)
		}
	}
	for _, name := range unnamed {
		if constants[name] != "" {
			t.Errorf("%s is a constant of the API by now: use it", name)
		}
	}
}

// apiNames maps the names of KubeVirt's and CDI's groups, such as kubevirt.io/domain, to the constants of the API
// modules that hold them.
func apiNames(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, of := range []string{"kubevirt.io/api/core", "kubevirt.io/containerized-data-importer-api/pkg/apis/core"} {
		core, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", of).Output()
		if err != nil {
			t.Fatalf("finding the API module: %v", err)
		}
		err = filepath.WalkDir(filepath.Dir(string(core)), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			for constant, value := range textConstants(t, path) {
				if strings.Contains(value, "kubevirt.io/") {
					names[value] = constant
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{
		v1.DomainAnnotation, v1.VirtualMachineLabel, instancetype.DefaultPreferenceLabel, cdiv1.AnnPrePopulated, cdiv1.AnnCheckStaticVolume,
	} {
		if names[known] == "" {
			t.Fatalf("%s is not found in the API module: the test looks in the wrong place", known)
		}
	}
	return names
}

// textConstants returns the string constants of a folder's package.
func textConstants(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		collectConstants(parsed, values)
	}
	texts := map[string]string{}
	for name, value := range values {
		if text, isText := evaluated(value, values); isText {
			texts[name] = text
		}
	}
	return texts
}

func collectConstants(file *ast.File, values map[string]ast.Expr) {
	for _, declaration := range file.Decls {
		general, isGeneral := declaration.(*ast.GenDecl)
		if !isGeneral || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			constants := spec.(*ast.ValueSpec)
			for i, value := range constants.Values {
				values[constants.Names[i].Name] = value
			}
		}
	}
}

// evaluated returns the string value of an expression of constants.
func evaluated(e ast.Expr, values map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		return evaluated(values[e.Name], values)
	case *ast.SelectorExpr:
		// The only constant of another package in such names.
		if id, isIdent := e.X.(*ast.Ident); isIdent && id.Name+"."+e.Sel.Name == "core.GroupName" {
			return cdicore.GroupName, true
		}
	case *ast.ParenExpr:
		return evaluated(e.X, values)
	case *ast.BinaryExpr:
		left, isText := evaluated(e.X, values)
		right, also := evaluated(e.Y, values)
		return left + right, isText && also && e.Op == token.ADD
	}
	return "", false
}

func TestAnnotationsAreServedToldOrRefused(t *testing.T) {
	at := field.NewPath("metadata", "annotations")
	set := map[string]string{
		"example.com/anything":                             "at all",
		layout.HookSidecarsAnnotation:                      "",
		v1.IgnitionAnnotation:                              "{}",
		v1.DisablePCIHole64:                                "true",
		v1.PlacePCIDevicesOnRootComplex:                    "false",
		v1.PauseGuestAgentProbesAnnotation:                 "1",
		v1.KeepLauncherAfterFailureAnnotation:              "",
		layout.LeaveLauncherPodAnnotation:                  "false",
		v1.MemfdMemoryBackend:                              "false",
		v1.VGADisplayForEFIGuestsX86Annotation:             "true",
		v1.EmulatorThreadCompleteToEvenParity:              "",
		layout.SkipBackupHooksAnnotation:                   "true",
		cdiv1.AnnCheckStaticVolume:                         "",
		layout.AnnImmediate:                                "true",
		"cdi.kubevirt.io/storage.usePopulator":             "true",
		"cdi.kubevirt.io/storage.deleteAfterCompletion":    "false",
		"cdi.kubevirt.io/storage.newerThanDrydock":         "true",
		v1.ImmediateDataVolumeCreation:                     "false",
		v1.MigrationPendingPodTimeoutSecondsAnnotation:     "60",
		v1.MigrationUtilityVolumesTimeoutSecondsAnnotation: "60",
	}
	errs := func(list field.ErrorList) []string {
		var texts []string
		for _, err := range list {
			texts = append(texts, err.Error())
		}
		return texts
	}
	for what, c := range map[string]struct{ got, want []string }{
		"refused in a VMI": {errs(VMIAnnotations(set, at)), []string{
			"metadata.annotations[hooks.kubevirt.io/hookSidecars]: Forbidden: not supported by Drydock: a hook changes the definition that libvirt has of a guest, and there is no libvirt here; use the spec's fields",
			"metadata.annotations[kubevirt.io/pause-guest-agent-probes]: Forbidden: not supported by Drydock: probes are not paused, and one that fails can end the guest; leave guestAgentPing out where the agent may be away",
		}},
		"told of a VMI": {VMIAnnotationWarnings(set, at), []string{
			"metadata.annotations[kubevirt.io/keep-launcher-alive-after-failure] has no effect: a launcher pod ends with its guest; the VMI and virt-handler's log tell why",
			"metadata.annotations[kubevirt.io/memfd] has no effect: nothing here needs a guest's memory to be a memfd",
		}},
		"told of a VM": {VMAnnotationWarnings(set, at), []string{
			"metadata.annotations[kubevirt.io/skip-backup-hooks] has no effect: it is read of the VMI; set it in spec.template.metadata.annotations",
		}},
		"told of a migration": {MigrationAnnotationWarnings(set, at), []string{
			"metadata.annotations[kubevirt.io/migrationUtilityVolumesTimeoutSeconds] has no effect: there are no utility volumes",
		}},
		"refused in a DataVolume": {errs(DataVolumeAnnotations(set, at)), []string{
			"metadata.annotations[cdi.kubevirt.io/storage.checkStaticVolume]: Forbidden: not supported by Drydock: a volume that exists and has a disk would be overwritten; make a claim of it, and annotate that with cdi.kubevirt.io/allowClaimAdoption=true",
		}},
		"told of a DataVolume": {DataVolumeAnnotationWarnings(set, at), []string{
			"metadata.annotations[cdi.kubevirt.io/storage.usePopulator] has no effect: a worker writes to the claim itself, with any class",
			"metadata.annotations[cdi.kubevirt.io/storage.newerThanDrydock] has no effect: Drydock does not know this annotation of CDI's",
		}},
		"refused in the KubeVirt object": {errs(KubeVirtAnnotations(set, at)), []string{
			"metadata.annotations[kubevirt.io/vga-display-efi-x86]: Forbidden: not supported by Drydock: guests with UEFI have a bochs display; name `domain.devices.video.type: vga` in the VMs that need one",
		}},
		"told of the KubeVirt object": {KubeVirtAnnotationWarnings(set, at), []string{
			"metadata.annotations[kubevirt.io/skip-backup-hooks] has no effect: it is read of each VMI; set it in the templates of VMs",
		}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

// The functions that only warn would let a refused annotation pass.
func TestWhereNoneIsRefusedTheTableRefusesNone(t *testing.T) {
	for kind, table := range map[string]table{"a VM": vmAnnotationTable, "a migration": migrationAnnotationTable} {
		for name, e := range table {
			if !e.yes || len(e.only) > 0 {
				t.Errorf("%s of %s is refused, and nothing asks for that", name, kind)
			}
		}
	}
}

func TestAnnotationsOfTemplatesAreTold(t *testing.T) {
	template := &v1.VirtualMachineInstanceTemplateSpec{}
	template.ObjectMeta.Annotations = map[string]string{v1.CustomLibvirtLogFiltersAnnotation: "1:*"}
	at := field.NewPath("spec")
	want := []string{"spec.template.metadata.annotations[kubevirt.io/libvirt-log-filters] has no effect: there is no libvirt here; the label `debugLogs` has QEMU log"}
	if diff := cmp.Diff(want, VMSpecWarnings(&v1.VirtualMachineSpec{Template: template}, at)); diff != "" {
		t.Errorf("a VM: %s", diff)
	}
	if diff := cmp.Diff(want, ReplicaSetSpecWarnings(&v1.VirtualMachineInstanceReplicaSetSpec{Template: template}, at)); diff != "" {
		t.Errorf("a replica set: %s", diff)
	}
}
