// Package clusterconfig chooses the effective KubeVirt object, converts it into the settings of Drydock's components
// with every default, and holds the newest settings. It must not validate (admission does), write, or report status.
package clusterconfig

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// Namespace is that of Drydock's components. Namespace and Name are the KubeVirt object's usual ones (TheOne).
const (
	Namespace = "kubevirt"
	Name      = "kubevirt"
)

// HandlerServiceAccount is virt-handler's service account.
const HandlerServiceAccount = "kubevirt-handler"

// DefaultMachineType is that of a new VM without one.
const DefaultMachineType = machinetype.Default

// MachineTypesAnnotation of the KubeVirt object maps machine types of other builds of QEMU (machinetype.Parse).
const MachineTypesAnnotation = "drydock.dev/machine-types"

// These feature gates expose to everybody who may create VMs the node's files or its usage figures (decision 603).
const (
	GateHostDisk        = "HostDisk"
	GateDownwardMetrics = "DownwardMetrics"
)

// Settings are the effective settings of the cluster. A value, with everything that it points to, is immutable.
type Settings struct {
	UseEmulation    bool
	ImagePullPolicy corev1.PullPolicy
	RolloutStrategy v1.VMRolloutStrategy
	LiveUpdate      LiveUpdate
	ReferencePolicy v1.InstancetypeReferencePolicy
	// CommonTypes deploys Drydock's instance types and preferences.
	CommonTypes bool
	// MigratesGuests migrates guests whose launcher pods are outdated (spec.workloadUpdateStrategy).
	MigratesGuests   bool
	EvictionStrategy v1.EvictionStrategy
	// MachineType and CPUModel are for VMs that name none. With an empty CPUModel, virt-handler takes the host's model
	// with KVM and QEMU's widest with emulation.
	MachineType string
	CPUModel    string
	// MachineTypes map the types of other builds of QEMU. AllowedMachineTypes are the patterns of types that VMs may
	// name (emulatedMachines); none allows all.
	MachineTypes        machinetype.Map
	AllowedMachineTypes []string
	BridgeOnPodNetwork  bool
	// VMStateStorageClass is for claims of VM state, "" for the default class.
	VMStateStorageClass string
	// SMBIOS is nil for KubeVirt's defaults.
	SMBIOS *v1.SMBiosConfiguration
	// DefaultNetworkInterface is the binding in a VMI that lists no network: "masquerade" or "bridge".
	DefaultNetworkInterface string
	NetworkBindings         networkbinding.Registered
	// HostDevices are the PCI devices of nodes that VMs may have.
	HostDevices hostdevice.Permitted
	// CPUAllocationRatio is the number of guest vCPUs per physical CPU in the launcher pod's CPU request.
	CPUAllocationRatio int
	// EvenEmulatorCPUs makes the number of a guest's dedicated CPUs even, if one is for QEMU's own threads
	// (v1.EmulatorThreadCompleteToEvenParity of the KubeVirt object).
	EvenEmulatorCPUs bool
	// AdditionalGuestMemoryOverheadRatio multiplies the pod's memory overhead, as a decimal string; "" means 1.
	AdditionalGuestMemoryOverheadRatio string
	// CPURequest is for a guest that sets none; nil means by CPUAllocationRatio.
	CPURequest *resource.Quantity
	// MemoryOvercommit is the guest's memory in percent of the pod's memory request, for guests that set no request; 0
	// means 100.
	MemoryOvercommit int
	// LessSpaceTolerated is by how many percent a new disk in a claim may be smaller than requested
	// (developerConfiguration.pvcTolerateLessSpaceUpToPercent).
	LessSpaceTolerated int
	// NodeSelectors are labels that every node of a guest must have.
	NodeSelectors map[string]string
	// RuntimeClass is that of launcher pods, "" for the node's default.
	RuntimeClass string
	// TLS restricts virt-api's servers.
	TLS TLS
	// SELinuxLauncherType is the SELinux type of launcher pods, "" for the container runtime's choice.
	SELinuxLauncherType       string
	HostDisk, DownwardMetrics bool
	// Migrations has every field set that has a default.
	Migrations v1.MigrationConfiguration
	Verbosity  Verbosity
	// LogFormat is no setting of the object, but virt-controller's own, which its pods get.
	LogFormat logline.Format
	Rates     Rates
	// CDI means that CDI is installed and serves DataVolumes instead of Drydock.
	CDI bool
}

// ConditionDataVolumes of the KubeVirt object is False while CDI serves DataVolumes instead of Drydock.
const ConditionDataVolumes v1.KubeVirtConditionType = "ServesDataVolumes"

// FromKubeVirt returns the settings of the KubeVirt object, nil for none.
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
	s.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, kv.Spec.ImagePullPolicy, s.ImagePullPolicy)
	if c.VMRolloutStrategy != nil {
		s.RolloutStrategy = *c.VMRolloutStrategy
	}
	if c.EvictionStrategy != nil {
		s.EvictionStrategy = *c.EvictionStrategy
	}
	s.MigratesGuests = slices.Contains(kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods, v1.WorkloadUpdateMethodLiveMigrate)
	s.setMachineTypes(kv)
	_, s.EvenEmulatorCPUs = kv.Annotations[v1.EmulatorThreadCompleteToEvenParity]
	if n := c.NetworkConfiguration.DeepCopy(); n != nil {
		s.DefaultNetworkInterface = cmp.Or(n.NetworkInterface, s.DefaultNetworkInterface)
		s.NetworkBindings = n.Binding
		s.BridgeOnPodNetwork = n.PermitBridgeInterfaceOnPodNetwork == nil || *n.PermitBridgeInterfaceOnPodNetwork
	}
	s.setInstancetypes(c)
	s.LiveUpdate = liveUpdate(c.LiveUpdateConfiguration)
	s.Migrations = migrations(c.MigrationConfiguration)
	s.TLS = tlsOf(c.TLSConfiguration)
	s.Verbosity = verbosity(c.DeveloperConfiguration)
	s.Rates = Rates{
		API: rate(c.APIConfiguration), Webhook: rate(c.WebhookConfiguration),
		Controller: rate(c.ControllerConfiguration), Handler: rate(c.HandlerConfiguration),
	}
	s.HostDevices = hostdevice.Read(c.PermittedHostDevices)
	s.RuntimeClass = c.DefaultRuntimeClass
	if c.CPURequest != nil && c.CPURequest.Sign() > 0 {
		s.CPURequest = new(c.CPURequest.DeepCopy())
	}
	s.CPUModel = c.CPUModel
	s.VMStateStorageClass = c.VMStateStorageClass
	s.SELinuxLauncherType = c.SELinuxLauncherType
	s.SMBIOS = c.SMBIOSConfig.DeepCopy()
	if ratio := c.AdditionalGuestMemoryOverheadRatio; ratio != nil {
		s.AdditionalGuestMemoryOverheadRatio = *ratio
	}
	if d := c.DeveloperConfiguration; d != nil {
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
	return s
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

// Current holds the newest settings, at first the defaults. It is safe for concurrent use.
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

// Set replaces the settings by those of kv, nil for none.
func (c *Current) Set(kv *v1.KubeVirt) {
	s := FromKubeVirt(kv)
	c.settings.Store(&s)
}
