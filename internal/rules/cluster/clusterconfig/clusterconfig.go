// Package clusterconfig chooses the effective KubeVirt object, converts it into the settings of Drydock's components
// with every default filled in, and holds the newest settings for its callers. It must not validate (admission does),
// write, or report status.
package clusterconfig

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

// Namespace is the namespace of Drydock's components. Namespace and Name are the KubeVirt object's usual ones
// (TheOne).
const (
	Namespace = "kubevirt"
	Name      = "kubevirt"
)

// HandlerServiceAccount is the service account of virt-handler in Namespace.
const HandlerServiceAccount = "kubevirt-handler"

// DefaultMachineType is the machine type that a new VM without one gets.
const DefaultMachineType = machinetype.Default

// MachineTypesAnnotation of the KubeVirt object maps the machine types of other builds of QEMU, which VMs may
// name, to those of this one (machinetype.Parse).
const MachineTypesAnnotation = "drydock.dev/machine-types"

// Feature gates expose something of the nodes to everybody who may create VMs: HostDisk the node's files,
// DownwardMetrics its usage figures (decision 603).
const (
	GateHostDisk        = "HostDisk"
	GateDownwardMetrics = "DownwardMetrics"
)

// Settings are the effective settings of the cluster. A value is immutable.
type Settings struct {
	// UseEmulation lets a VM run without hardware virtualization
	// (developerConfiguration.useEmulation).
	UseEmulation bool
	// ImagePullPolicy of launcher pods (spec.imagePullPolicy, then
	// configuration.imagePullPolicy), IfNotPresent by default.
	ImagePullPolicy corev1.PullPolicy
	// RolloutStrategy is Stage by default.
	RolloutStrategy v1.VMRolloutStrategy
	LiveUpdate      LiveUpdate
	// ReferencePolicy is reference by default (configuration.instancetype.referencePolicy).
	ReferencePolicy v1.InstancetypeReferencePolicy
	// CommonTypes deploys Drydock's instance types and preferences
	// (configuration.commonInstancetypesDeployment.enabled), by default true.
	CommonTypes bool
	// MigratesGuests migrates guests whose launcher pods are outdated (spec.workloadUpdateStrategy).
	MigratesGuests bool
	// EvictionStrategy is None by default.
	EvictionStrategy v1.EvictionStrategy
	// MachineType and CPUModel are for VMs that name none. With an empty CPUModel, virt-handler takes the
	// host's model with KVM and QEMU's widest with emulation.
	MachineType string
	CPUModel    string
	// MachineTypes map the types of other builds of QEMU. AllowedMachineTypes are the patterns of types that
	// VMs may name (emulatedMachines); none allows all.
	MachineTypes        machinetype.Map
	AllowedMachineTypes []string
	// BridgeOnPodNetwork permits the bridge binding on the pod network
	// (network.permitBridgeInterfaceOnPodNetwork).
	BridgeOnPodNetwork bool
	// VMStateStorageClass is the class of the claims for persistent VM state; empty for the default class
	// (configuration.vmStateStorageClass).
	VMStateStorageClass string
	// SMBIOS is the manufacturer data in the guest; nil for KubeVirt's defaults (configuration.smbios). It must
	// not be changed.
	SMBIOS *v1.SMBiosConfiguration
	// DefaultNetworkInterface is the binding of the pod network's interface in a VMI that lists no network:
	// "masquerade" or "bridge".
	DefaultNetworkInterface string
	// NetworkBindings are the registered binding plugins (configuration.network.binding). They must not be
	// changed.
	NetworkBindings networkbinding.Registered
	// CPUAllocationRatio is the number of guest vCPUs per physical CPU in the launcher pod's CPU request.
	CPUAllocationRatio int
	// AdditionalGuestMemoryOverheadRatio multiplies the memory overhead that is requested beside the guest's
	// memory, as a decimal string; empty means 1.
	AdditionalGuestMemoryOverheadRatio string
	// CPURequest is the CPU request of a guest that sets none; nil means by CPUAllocationRatio
	// (configuration.cpuRequest). It must not be changed.
	CPURequest *resource.Quantity
	// MemoryOvercommit is the guest's memory in percent of the pod's memory request, for guests that set no
	// request; 0 means 100 (developerConfiguration.memoryOvercommit).
	MemoryOvercommit int
	// LessSpaceTolerated is by how many percent a new disk in a claim may be smaller than requested
	// (developerConfiguration.pvcTolerateLessSpaceUpToPercent).
	LessSpaceTolerated int
	// NodeSelectors are labels that every node of a guest must have (developerConfiguration.nodeSelectors).
	// They must not be changed.
	NodeSelectors map[string]string
	// RuntimeClass is that of launcher pods; empty for the node's default (configuration.defaultRuntimeClass).
	RuntimeClass string
	// TLS restricts virt-api's servers (configuration.tlsConfiguration).
	TLS TLS
	// SELinuxLauncherType is the SELinux type of launcher pods; empty for the container runtime's choice
	// (configuration.selinuxLauncherType).
	SELinuxLauncherType string
	// HostDisk permits disks in files of the node (developerConfiguration.featureGates).
	HostDisk bool
	// DownwardMetrics exposes figures of the node to guests (developerConfiguration.featureGates).
	DownwardMetrics bool
	// Migrations has every field set that has a default (configuration.migrations). Its pointees must not be
	// changed.
	Migrations v1.MigrationConfiguration
	// Verbosity is the log level of the components, and Rates limits their requests to the API server.
	Verbosity Verbosity
	Rates     Rates
	// CDI means that CDI is installed and serves DataVolumes instead of Drydock.
	CDI bool
}

// ConditionDataVolumes is the KubeVirt object's condition that is False while CDI serves DataVolumes instead of
// Drydock.
const ConditionDataVolumes v1.KubeVirtConditionType = "ServesDataVolumes"

// FromKubeVirt returns the settings of the KubeVirt object; nil gives the defaults.
func FromKubeVirt(kv *v1.KubeVirt) Settings {
	s := Settings{
		ImagePullPolicy:         corev1.PullIfNotPresent,
		RolloutStrategy:         v1.VMRolloutStrategyStage,
		ReferencePolicy:         v1.Reference,
		CommonTypes:             true,
		LiveUpdate:              liveUpdate(nil),
		EvictionStrategy:        v1.EvictionStrategyNone,
		MachineType:             DefaultMachineType,
		DefaultNetworkInterface: "masquerade",
		BridgeOnPodNetwork:      true,
		CPUAllocationRatio:      10,
		LessSpaceTolerated:      10,
		Migrations:              migrations(nil),
	}
	if kv == nil {
		return s
	}
	s.CDI = slices.ContainsFunc(kv.Status.Conditions, func(condition v1.KubeVirtCondition) bool {
		return condition.Type == ConditionDataVolumes && condition.Status == corev1.ConditionFalse
	})
	c := &kv.Spec.Configuration
	if p := firstPolicy(c.ImagePullPolicy, kv.Spec.ImagePullPolicy); p != "" {
		s.ImagePullPolicy = p
	}
	if c.VMRolloutStrategy != nil {
		s.RolloutStrategy = *c.VMRolloutStrategy
	}
	if c.EvictionStrategy != nil {
		s.EvictionStrategy = *c.EvictionStrategy
	}
	s.MigratesGuests = slices.Contains(kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods, v1.WorkloadUpdateMethodLiveMigrate)
	s.setMachineTypes(kv)
	if n := c.NetworkConfiguration.DeepCopy(); n != nil {
		s.DefaultNetworkInterface = cmp.Or(n.NetworkInterface, s.DefaultNetworkInterface)
		s.NetworkBindings = n.Binding
		s.BridgeOnPodNetwork = n.PermitBridgeInterfaceOnPodNetwork == nil || *n.PermitBridgeInterfaceOnPodNetwork
	}
	s.setInstancetypes(c)
	s.LiveUpdate = liveUpdate(c.LiveUpdateConfiguration)
	s.Migrations = migrations(c.MigrationConfiguration)
	s.TLS = tlsOf(c.TLSConfiguration)
	s.Verbosity, s.Rates = verbosity(c.DeveloperConfiguration), rates(c)
	s.RuntimeClass = c.DefaultRuntimeClass
	if c.CPURequest != nil && c.CPURequest.Sign() > 0 {
		s.CPURequest = new(c.CPURequest.DeepCopy())
	}
	s.CPUModel = c.CPUModel
	s.VMStateStorageClass = c.VMStateStorageClass
	s.SELinuxLauncherType = c.SELinuxLauncherType
	s.SMBIOS = c.SMBIOSConfig.DeepCopy()
	s.AdditionalGuestMemoryOverheadRatio = additionalOverhead(c)
	if d := c.DeveloperConfiguration; d != nil {
		s.setDeveloper(d)
	}
	return s
}

func (s *Settings) setDeveloper(d *v1.DeveloperConfiguration) {
	s.UseEmulation = d.UseEmulation
	s.MemoryOvercommit = max(d.MemoryOvercommit, 0)
	s.NodeSelectors = maps.Clone(d.NodeSelectors)
	if d.LessPVCSpaceToleration > 0 {
		s.LessSpaceTolerated = min(d.LessPVCSpaceToleration, 100)
	}
	s.HostDisk, s.DownwardMetrics = gate(d, GateHostDisk), gate(d, GateDownwardMetrics)
	if d.CPUAllocationRatio > 0 {
		s.CPUAllocationRatio = d.CPUAllocationRatio
	}
}

func gate(d *v1.DeveloperConfiguration, name string) bool {
	return slices.Contains(d.FeatureGates, name) && !slices.Contains(d.DisabledFeatureGates, name)
}

func (s *Settings) setInstancetypes(c *v1.KubeVirtConfiguration) {
	if i := c.Instancetype; i != nil && i.ReferencePolicy != nil {
		s.ReferencePolicy = *i.ReferencePolicy
	}
	if d := c.CommonInstancetypesDeployment; d != nil && d.Enabled != nil {
		s.CommonTypes = *d.Enabled
	}
}

// setMachineTypes ignores unusable values, which admission refuses.
func (s *Settings) setMachineTypes(kv *v1.KubeVirt) {
	if m, err := machinetype.Parse(kv.Annotations[MachineTypesAnnotation]); err == nil {
		s.MachineTypes = m
	}
	c := &kv.Spec.Configuration
	kind, allowed := c.MachineType, c.EmulatedMachines
	if a := c.ArchitectureConfiguration; a != nil && a.Amd64 != nil {
		kind = cmp.Or(a.Amd64.MachineType, kind)
		if len(a.Amd64.EmulatedMachines) > 0 {
			allowed = a.Amd64.EmulatedMachines
		}
	}
	if kind, err := s.MachineTypes.Resolve(kind); err == nil {
		s.MachineType = kind
	}
	s.AllowedMachineTypes = slices.Clone(allowed)
}

func firstPolicy(policies ...corev1.PullPolicy) corev1.PullPolicy {
	for _, p := range policies {
		if p != "" {
			return p
		}
	}
	return ""
}

func additionalOverhead(c *v1.KubeVirtConfiguration) string {
	if c.AdditionalGuestMemoryOverheadRatio == nil {
		return ""
	}
	return *c.AdditionalGuestMemoryOverheadRatio
}

// Current holds the newest settings. The zero value holds the defaults. It is safe for concurrent use.
type Current struct {
	settings atomic.Pointer[Settings]
}

// Get returns the newest settings.
func (c *Current) Get() Settings {
	if s := c.settings.Load(); s != nil {
		return *s
	}
	return FromKubeVirt(nil)
}

// Set replaces the settings by those of kv, nil if there is no KubeVirt object.
func (c *Current) Set(kv *v1.KubeVirt) {
	s := FromKubeVirt(kv)
	c.settings.Store(&s)
}
