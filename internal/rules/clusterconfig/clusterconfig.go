// Package clusterconfig says which KubeVirt object counts, turns it into the
// settings that Drydock's components work by, with every default filled in,
// and gives the newest settings to its callers.
//
// It owns the defaults and nothing else: it does not validate (admission
// does), write or report status.
package clusterconfig

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machinetype"
	"drydock.dev/drydock/internal/rules/networkbinding"
)

// Namespace is where Drydock's components live, and Namespace and Name are
// the KubeVirt object's usual ones (TheOne).
const (
	Namespace = "kubevirt"
	Name      = "kubevirt"
)

// HandlerServiceAccount is what virt-handler runs as, in Namespace.
const HandlerServiceAccount = "kubevirt-handler"

// DefaultMachineType is what a VM without a machine type is pinned to when it is created.
const DefaultMachineType = machinetype.Default

// MachineTypesAnnotation of the KubeVirt object says by which machine types guests run whose VMs name those of other
// builds of QEMU (machinetype.Parse).
const MachineTypesAnnotation = "drydock.dev/machine-types"

// The feature gates that have an effect: they give those who may create VMs something of the nodes. With hostDisk that
// is a node's files, with downwardMetrics figures of its use (decision 603).
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
	// RolloutStrategy is Stage unless LiveUpdate is asked for.
	RolloutStrategy v1.VMRolloutStrategy
	// LiveUpdate is how much room guests of VMs get to grow while they run.
	LiveUpdate LiveUpdate
	// ReferencePolicy is reference unless set (configuration.instancetype.referencePolicy).
	ReferencePolicy v1.InstancetypeReferencePolicy
	// CommonTypes says that the cluster has the instance types and preferences that come with Drydock, unless that is
	// turned off (configuration.commonInstancetypesDeployment.enabled).
	CommonTypes bool
	// MigratesGuests says that guests are migrated to what their pods lack (spec.workloadUpdateStrategy).
	MigratesGuests bool
	// EvictionStrategy is None unless set.
	EvictionStrategy v1.EvictionStrategy
	// MachineType and CPUModel are for VMs that name none. CPUModel may be
	// empty: then virt-handler takes the host's model with KVM and QEMU's
	// widest with emulation.
	MachineType string
	CPUModel    string
	// MachineTypes are for VMs that name the types of other builds of QEMU, and AllowedMachineTypes the patterns of
	// what VMs may name (emulatedMachines); none allows everything.
	MachineTypes        machinetype.Map
	AllowedMachineTypes []string
	// BridgeOnPodNetwork lets interfaces on the pods' network be connected by bridge
	// (network.permitBridgeInterfaceOnPodNetwork).
	BridgeOnPodNetwork bool
	// VMStateStorageClass is the class of the claims that VMs' state is kept on; empty for the default
	// (configuration.vmStateStorageClass).
	VMStateStorageClass string
	// SMBIOS is what guests are told of their manufacturer; nil for KubeVirt's own
	// words (configuration.smbios). Its holder must not change it.
	SMBIOS *v1.SMBiosConfiguration
	// DefaultNetworkInterface is the binding of the pod network's interface in
	// a VMI that lists no network: "masquerade" or "bridge".
	DefaultNetworkInterface string
	// NetworkBindings are the bindings that are registered beside those (configuration.network.binding). Its holder must
	// not change them.
	NetworkBindings networkbinding.Registered
	// CPUAllocationRatio is how many guest vCPUs share one physical CPU in the
	// launcher pod's CPU request.
	CPUAllocationRatio int
	// AdditionalGuestMemoryOverheadRatio multiplies the memory that is asked
	// for beside the guest's own, as a decimal string; empty means 1.
	AdditionalGuestMemoryOverheadRatio string
	// CPURequest is what a guest that asks for no CPU asks the cluster for; nil leaves that to CPUAllocationRatio
	// (configuration.cpuRequest). Its holder must not change it.
	CPURequest *resource.Quantity
	// MemoryOvercommit is the guest's memory in percent of what its pod asks for, for guests that don't say what that is; 0
	// means 100 (developerConfiguration.memoryOvercommit).
	MemoryOvercommit int
	// LessSpaceTolerated is how much smaller than it was to be, in percent, a disk may be that is made in a claim
	// (developerConfiguration.pvcTolerateLessSpaceUpToPercent).
	LessSpaceTolerated int
	// NodeSelectors are labels that each node of a guest must have (developerConfiguration.nodeSelectors). Its holder must
	// not change them.
	NodeSelectors map[string]string
	// RuntimeClass is that of launcher pods; empty for the node's own (configuration.defaultRuntimeClass).
	RuntimeClass string
	// TLS is what virt-api's servers accept (configuration.tlsConfiguration).
	TLS TLS
	// SELinuxLauncherType is the SELinux type that launcher pods ask for; empty to
	// leave it to the container runtime (configuration.selinuxLauncherType).
	SELinuxLauncherType string
	// HostDisk lets VMs have disks in files of their node
	// (developerConfiguration.featureGates).
	HostDisk bool
	// DownwardMetrics lets guests be told figures of their node (likewise).
	DownwardMetrics bool
	// Migrations is how guests migrate, with every field set that has a default
	// (configuration.migrations). Its holder must not change what it points to.
	Migrations v1.MigrationConfiguration
	// Verbosity is how much the components log, and Rates how fast they ask the API server.
	Verbosity Verbosity
	Rates     Rates
	// CDI says that CDI is installed and serves DataVolumes instead of Drydock.
	CDI bool
}

// ConditionDataVolumes is the KubeVirt object's condition that is False while CDI
// serves DataVolumes and Drydock leaves them to it.
const ConditionDataVolumes v1.KubeVirtConditionType = "ServesDataVolumes"

// FromKubeVirt reads the settings from the KubeVirt object; nil gives the
// defaults.
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

// gate reports whether an administrator has opened a feature gate.
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

// setMachineTypes reads which machines guests may have. What can't be used, which admission would have refused, counts
// as not set.
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

// Current holds the newest settings. The zero value holds the defaults; it is
// safe for concurrent use. The watch of the KubeVirt object calls Set.
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

// Set replaces the settings by those of kv; nil means that there is no
// KubeVirt object.
func (c *Current) Set(kv *v1.KubeVirt) {
	s := FromKubeVirt(kv)
	c.settings.Store(&s)
}
