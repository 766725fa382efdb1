package clusterconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

// usual returns the settings of a cluster without any configuration.
func usual(edits ...func(*Settings)) Settings {
	s := Settings{
		ImagePullPolicy: "IfNotPresent", RolloutStrategy: "Stage", ReferencePolicy: "reference", CommonTypes: true, EvictionStrategy: "None", MachineType: "pc-q35-10.0",
		DefaultNetworkInterface: "masquerade", BridgeOnPodNetwork: true, CPUAllocationRatio: 10, LessSpaceTolerated: 10, LiveUpdate: LiveUpdate{MaxHotplugRatio: 4},
		Migrations: v1.MigrationConfiguration{
			NodeDrainTaintKey: new("kubevirt.io/drain"), ParallelOutboundMigrationsPerNode: new(uint32(2)), ParallelMigrationsPerCluster: new(uint32(5)),
			AllowAutoConverge: new(false), BandwidthPerMigration: new(resource.MustParse("0")), CompletionTimeoutPerGiB: new(int64(150)),
			ProgressTimeout: new(int64(150)), UtilityVolumesTimeout: new(int64(150)), UnsafeMigrationOverride: new(false), AllowPostCopy: new(false),
			AllowWorkloadDisruption: new(false), DisableTLS: new(false), MatchSELinuxLevelOnMigration: new(false),
		},
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func TestWhatTheKubeVirtObjectSets(t *testing.T) {
	serves := func(status corev1.ConditionStatus) v1.KubeVirt {
		return v1.KubeVirt{Status: v1.KubeVirtStatus{Conditions: []v1.KubeVirtCondition{
			{Type: "Available", Status: corev1.ConditionFalse}, {Type: ConditionDataVolumes, Status: status}, {Type: "Degraded", Status: corev1.ConditionFalse},
		}}}
	}
	configured := func(c v1.KubeVirtConfiguration) v1.KubeVirt {
		return v1.KubeVirt{Spec: v1.KubeVirtSpec{Configuration: c}}
	}
	mapped := func(types string, c v1.KubeVirtConfiguration) v1.KubeVirt {
		kv := configured(c)
		kv.Annotations = map[string]string{MachineTypesAnnotation: types}
		return kv
	}
	both := configured(v1.KubeVirtConfiguration{ImagePullPolicy: corev1.PullNever})
	both.Spec.ImagePullPolicy = corev1.PullAlways
	for name, test := range map[string]struct {
		kv   v1.KubeVirt
		want Settings
	}{
		"nothing":                               {v1.KubeVirt{}, usual()},
		"CDI serves DataVolumes":                {serves(corev1.ConditionFalse), usual(func(s *Settings) { s.CDI = true })},
		"Drydock serves them":                   {serves(corev1.ConditionTrue), usual()},
		"the object's own policy":               {v1.KubeVirt{Spec: v1.KubeVirtSpec{ImagePullPolicy: corev1.PullAlways}}, usual(func(s *Settings) { s.ImagePullPolicy = "Always" })},
		"the configuration's policy goes first": {both, usual(func(s *Settings) { s.ImagePullPolicy = "Never" })},
		"strategies": {configured(v1.KubeVirtConfiguration{VMRolloutStrategy: new(v1.VMRolloutStrategyLiveUpdate), EvictionStrategy: new(v1.EvictionStrategyExternal)}),
			usual(func(s *Settings) { s.RolloutStrategy, s.EvictionStrategy = "LiveUpdate", "External" })},
		"guests that are migrated to what they lack": {v1.KubeVirt{Spec: v1.KubeVirtSpec{WorkloadUpdateStrategy: v1.KubeVirtWorkloadUpdateStrategy{
			WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodEvict, v1.WorkloadUpdateMethodLiveMigrate},
		}}}, usual(func(s *Settings) { s.MigratesGuests = true })},
		"disks that may be smaller": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{LessPVCSpaceToleration: 25}}),
			usual(func(s *Settings) { s.LessSpaceTolerated = 25 })},
		"disks that may be nothing": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{LessPVCSpaceToleration: 900}}),
			usual(func(s *Settings) { s.LessSpaceTolerated = 100 })},
		"guests that are evicted": {v1.KubeVirt{Spec: v1.KubeVirtSpec{WorkloadUpdateStrategy: v1.KubeVirtWorkloadUpdateStrategy{
			WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodEvict},
		}}}, usual()},
		"VMs that are expanded": {configured(v1.KubeVirtConfiguration{Instancetype: &v1.InstancetypeConfiguration{ReferencePolicy: new(v1.Expand)}}),
			usual(func(s *Settings) { s.ReferencePolicy = "expand" })},
		"instance types, of which no policy is said": {configured(v1.KubeVirtConfiguration{Instancetype: &v1.InstancetypeConfiguration{}}), usual()},
		"a request of no CPU":                        {configured(v1.KubeVirtConfiguration{CPURequest: new(resource.MustParse("0"))}), usual()},
		"no version of TLS but the least":            {configured(v1.KubeVirtConfiguration{TLSConfiguration: &v1.TLSConfiguration{MinTLSVersion: v1.VersionTLS12}}), usual()},
		"a machine type beside what is allowed in the older place": {configured(v1.KubeVirtConfiguration{EmulatedMachines: []string{"q35*"},
			ArchitectureConfiguration: &v1.ArchConfiguration{Amd64: &v1.ArchSpecificConfiguration{MachineType: "q35"}}}),
			usual(func(s *Settings) { s.MachineType, s.AllowedMachineTypes = "q35", []string{"q35*"} })},
		"common instance types, turned off": {configured(v1.KubeVirtConfiguration{CommonInstancetypesDeployment: &v1.CommonInstancetypesDeployment{Enabled: new(false)}}),
			usual(func(s *Settings) { s.CommonTypes = false })},
		"common instance types, turned on":                {configured(v1.KubeVirtConfiguration{CommonInstancetypesDeployment: &v1.CommonInstancetypesDeployment{Enabled: new(true)}}), usual()},
		"common instance types, of which nothing is said": {configured(v1.KubeVirtConfiguration{CommonInstancetypesDeployment: &v1.CommonInstancetypesDeployment{}}), usual()},
		"a machine type": {configured(v1.KubeVirtConfiguration{ArchitectureConfiguration: &v1.ArchConfiguration{Amd64: &v1.ArchSpecificConfiguration{MachineType: "q35"}}}),
			usual(func(s *Settings) { s.MachineType = "q35" })},
		"a machine type in the older place": {configured(v1.KubeVirtConfiguration{MachineType: "pc-q35-6.2", EmulatedMachines: []string{"q35*"}}),
			usual(func(s *Settings) { s.MachineType, s.AllowedMachineTypes = "pc-q35-6.2", []string{"q35*"} })},
		"machine types in both places": {configured(v1.KubeVirtConfiguration{MachineType: "pc-q35-6.2", EmulatedMachines: []string{"q35*"},
			ArchitectureConfiguration: &v1.ArchConfiguration{Amd64: &v1.ArchSpecificConfiguration{MachineType: "q35", EmulatedMachines: []string{"pc-q35*"}}}}),
			usual(func(s *Settings) { s.MachineType, s.AllowedMachineTypes = "q35", []string{"pc-q35*"} })},
		"a machine type of another build": {mapped("pc-q35-rhel9*=pc-q35-7.1", v1.KubeVirtConfiguration{MachineType: "pc-q35-rhel9.4.0"}),
			usual(func(s *Settings) {
				s.MachineType, s.MachineTypes = "pc-q35-7.1", machinetype.Map{{Pattern: "pc-q35-rhel9*", Type: "pc-q35-7.1"}}
			})},
		"a map of machine types that can't be read": {mapped("nonsense", v1.KubeVirtConfiguration{MachineType: "nonsense"}), usual()},
		"what all pods of guests get": {configured(v1.KubeVirtConfiguration{CPURequest: new(resource.MustParse("50m")), DefaultRuntimeClass: "guests",
			DeveloperConfiguration: &v1.DeveloperConfiguration{MemoryOvercommit: 150, NodeSelectors: map[string]string{"disk": "fast"}}}),
			usual(func(s *Settings) {
				s.CPURequest, s.RuntimeClass, s.MemoryOvercommit = new(resource.MustParse("50m")), "guests", 150
				s.NodeSelectors = map[string]string{"disk": "fast"}
			})},
		"no bridges on the pods' network": {configured(v1.KubeVirtConfiguration{NetworkConfiguration: &v1.NetworkConfiguration{PermitBridgeInterfaceOnPodNetwork: new(false)}}),
			usual(func(s *Settings) { s.BridgeOnPodNetwork = false })},
		"a gate that is closed again": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{
			FeatureGates: []string{"HostDisk"}, DisabledFeatureGates: []string{"HostDisk"}}}), usual()},
		"a gate for figures of nodes": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{
			FeatureGates: []string{"DownwardMetrics"}, DisabledFeatureGates: []string{"HostDisk"}}}), usual(func(s *Settings) { s.DownwardMetrics = true })},
		"an architecture without a machine type": {configured(v1.KubeVirtConfiguration{ArchitectureConfiguration: &v1.ArchConfiguration{Amd64: &v1.ArchSpecificConfiguration{}}}), usual()},
		"another architecture":                   {configured(v1.KubeVirtConfiguration{ArchitectureConfiguration: &v1.ArchConfiguration{}}), usual()},
		"a binding for pods' networks": {configured(v1.KubeVirtConfiguration{NetworkConfiguration: &v1.NetworkConfiguration{NetworkInterface: "bridge"}}),
			usual(func(s *Settings) { s.DefaultNetworkInterface = "bridge" })},
		"network bindings": {configured(v1.KubeVirtConfiguration{NetworkConfiguration: &v1.NetworkConfiguration{Binding: map[string]v1.InterfaceBindingPlugin{"mine": {DomainAttachmentType: v1.Tap}}}}),
			usual(func(s *Settings) {
				s.NetworkBindings = networkbinding.Registered{"mine": {DomainAttachmentType: v1.Tap}}
			})},
		"a network without a binding": {configured(v1.KubeVirtConfiguration{NetworkConfiguration: &v1.NetworkConfiguration{}}), usual()},
		"what is taken as it is": {configured(v1.KubeVirtConfiguration{CPUModel: "Nehalem", VMStateStorageClass: "shared", SELinuxLauncherType: "virt_launcher.process",
			SMBIOSConfig: &v1.SMBiosConfiguration{Family: "Example"}, AdditionalGuestMemoryOverheadRatio: new("1.5")}),
			usual(func(s *Settings) {
				s.CPUModel, s.VMStateStorageClass, s.SELinuxLauncherType, s.SMBIOS, s.AdditionalGuestMemoryOverheadRatio = "Nehalem", "shared", "virt_launcher.process", &v1.SMBiosConfiguration{Family: "Example"}, "1.5"
			})},
		"for developers": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{UseEmulation: true, FeatureGates: []string{"HostDisk"}, CPUAllocationRatio: 1}}),
			usual(func(s *Settings) { s.UseEmulation, s.HostDisk, s.CPUAllocationRatio = true, true, 1 })},
		"migrations, all of it": {configured(v1.KubeVirtConfiguration{MigrationConfiguration: allOfMigrations()}), usual(func(s *Settings) { s.Migrations = *allOfMigrations() })},
		"migrations, a part of it": {configured(v1.KubeVirtConfiguration{MigrationConfiguration: &v1.MigrationConfiguration{ProgressTimeout: new(int64(7))}}),
			usual(func(s *Settings) { s.Migrations.ProgressTimeout = new(int64(7)) })},
		"migrations by post-copy": {configured(v1.KubeVirtConfiguration{MigrationConfiguration: &v1.MigrationConfiguration{AllowPostCopy: new(true)}}),
			usual(func(s *Settings) {
				s.Migrations.AllowPostCopy, s.Migrations.AllowWorkloadDisruption = new(true), new(true)
			})},
		"room to grow": {configured(v1.KubeVirtConfiguration{LiveUpdateConfiguration: &v1.LiveUpdateConfiguration{MaxHotplugRatio: 2, MaxCpuSockets: new(uint32(6)), MaxGuest: new(resource.MustParse("1Ki"))}}),
			usual(func(s *Settings) {
				s.LiveUpdate = LiveUpdate{MaxHotplugRatio: 2, MaxCPUSockets: 6, MaxGuest: 1024}
			})},
		"room for less than nothing":                {configured(v1.KubeVirtConfiguration{LiveUpdateConfiguration: &v1.LiveUpdateConfiguration{MaxGuest: new(resource.MustParse("-1Ki"))}}), usual()},
		"room to grow, with nothing in it":          {configured(v1.KubeVirtConfiguration{LiveUpdateConfiguration: &v1.LiveUpdateConfiguration{}}), usual()},
		"for developers, with nothing in it":        {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{FeatureGates: []string{"Other"}}}), usual()},
		"a ratio that divides by less than one CPU": {configured(v1.KubeVirtConfiguration{DeveloperConfiguration: &v1.DeveloperConfiguration{CPUAllocationRatio: -1}}), usual()},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, FromKubeVirt(&test.kv)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if diff := cmp.Diff(usual(), FromKubeVirt(nil)); diff != "" {
		t.Errorf("without a KubeVirt object:\n%s", diff)
	}
}

// allOfMigrations sets every field to a value other than the default.
func allOfMigrations() *v1.MigrationConfiguration {
	return &v1.MigrationConfiguration{
		NodeDrainTaintKey: new("example.com/drain"), ParallelOutboundMigrationsPerNode: new(uint32(3)), ParallelMigrationsPerCluster: new(uint32(9)),
		AllowAutoConverge: new(true), BandwidthPerMigration: new(resource.MustParse("64Mi")), CompletionTimeoutPerGiB: new(int64(800)),
		ProgressTimeout: new(int64(40)), UtilityVolumesTimeout: new(int64(50)), UnsafeMigrationOverride: new(true), AllowPostCopy: new(true),
		AllowWorkloadDisruption: new(false), DisableTLS: new(true), Network: new("migration"), MatchSELinuxLevelOnMigration: new(true),
	}
}

// A component's changes of its settings must not reach the watched object.
func TestSettingsShareNothingWithTheObject(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.MigrationConfiguration = allOfMigrations()
	*FromKubeVirt(kv).Migrations.Network = "another"
	if got := *kv.Spec.Configuration.MigrationConfiguration.Network; got != "migration" {
		t.Errorf("the object's network is %s now", got)
	}
}

func TestTheNewestSettingsCount(t *testing.T) {
	var current Current
	if diff := cmp.Diff(usual(), current.Get()); diff != "" {
		t.Errorf("before anything is set:\n%s", diff)
	}
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.CPUModel = "Nehalem"
	current.Set(kv)
	if got := current.Get().CPUModel; got != "Nehalem" {
		t.Errorf("the CPU model is %q, want that of the object", got)
	}
	current.Set(nil)
	if diff := cmp.Diff(usual(), current.Get()); diff != "" {
		t.Errorf("after the object is gone:\n%s", diff)
	}
}
