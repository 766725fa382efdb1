package validate

import (
	"errors"
	"fmt"
	"maps"
	gopath "path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/api/validate/vmispec"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/object/supported"
	"drydock.dev/drydock/internal/rules/pod/selinux"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// KubeVirt validates the configuration. old is nil on creation.
func KubeVirt(kv, old *v1.KubeVirt) field.ErrorList {
	if old != nil && kv.DeletionTimestamp != nil {
		return nil
	}
	errs := supported.KubeVirtAnnotations(changed(kv.Annotations, old), annotations)
	if old != nil && equality.Semantic.DeepEqual(kv.Spec, old.Spec) &&
		kv.Annotations[clusterconfig.MachineTypesAnnotation] == old.Annotations[clusterconfig.MachineTypesAnnotation] {
		return errs
	}
	spec := field.NewPath("spec")
	errs = append(errs, supported.KubeVirtSpec(&kv.Spec, spec)...)
	if _, err := machinetype.Parse(kv.Annotations[clusterconfig.MachineTypesAnnotation]); err != nil {
		errs = append(errs, field.Invalid(annotations.Key(clusterconfig.MachineTypesAnnotation),
			kv.Annotations[clusterconfig.MachineTypesAnnotation], err.Error()))
	}
	_, wrong := clusterconfig.CertificatesOf(kv)
	return append(append(errs, configuration(&kv.Spec, spec)...), wrong...)
}

func configuration(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	errs := fieldcheck.PullPolicy(spec.ImagePullPolicy, path.Child("imagePullPolicy"))
	errs = append(errs, ownWorkloads(spec, path)...)
	errs = append(errs, workloadUpdate(&spec.WorkloadUpdateStrategy, path.Child("workloadUpdateStrategy"))...)
	c, path := &spec.Configuration, path.Child("configuration")
	errs = append(errs, fieldcheck.PullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	if s := c.VMRolloutStrategy; s != nil {
		errs = append(errs, fieldcheck.OneOf(*s, path.Child("vmRolloutStrategy"),
			v1.VMRolloutStrategyStage, v1.VMRolloutStrategyLiveUpdate)...)
	}
	if r := c.AdditionalGuestMemoryOverheadRatio; r != nil {
		if ratio, err := strconv.ParseFloat(*r, 64); err != nil || ratio < 1 {
			errs = append(errs, field.Invalid(path.Child("additionalGuestMemoryOverheadRatio"), *r,
				"must be a decimal number of at least 1"))
		}
	}
	if d := c.DeveloperConfiguration; d != nil && d.CPUAllocationRatio < 0 {
		errs = append(errs, field.Invalid(path.Child("developerConfiguration", "cpuAllocationRatio"),
			d.CPUAllocationRatio, "must be at least 1"))
	}
	errs = append(errs, machineTypes(c, path)...)
	errs = append(errs, rates(c, path)...)
	if t := c.SELinuxLauncherType; t != "" && !selinux.ValidType(t) {
		errs = append(errs, field.Invalid(path.Child("selinuxLauncherType"), t, "must be the name of an SELinux type, such as container_t"))
	}
	errs = append(errs, guestDefaults(c, path)...)
	if c.CPUModel != "" {
		errs = append(errs, vmispec.ValidateCPUModel(c.CPUModel, path.Child("cpuModel"))...)
	}
	if n := c.NetworkConfiguration; n != nil {
		errs = append(errs, networkBindings(n.Binding, path.Child("network", "binding"))...)
	}
	errs = append(errs, permittedDevices(c.PermittedHostDevices, path.Child("permittedHostDevices", "pciHostDevices"))...)
	return append(errs, migrations(c.MigrationConfiguration, path.Child("migrations"))...)
}

func permittedDevices(permitted *v1.PermittedHostDevices, at *field.Path) field.ErrorList {
	if permitted == nil {
		return nil
	}
	list := permitted.PciHostDevices
	if len(list) > hostdevice.MaxPermitted {
		return field.ErrorList{field.TooMany(at, len(list), hostdevice.MaxPermitted)}
	}
	var errs field.ErrorList
	external, of := map[string]bool{}, map[string]string{}
	for i, d := range list {
		at := at.Index(i)
		if problem := hostdevice.CheckSelector(d.PCIVendorSelector); problem != "" {
			errs = append(errs, field.Invalid(at.Child("pciVendorSelector"), d.PCIVendorSelector, problem))
		}
		if problem := hostdevice.CheckResource(d.ResourceName); problem != "" {
			errs = append(errs, field.Invalid(at.Child("resourceName"), d.ResourceName, problem))
		}
		if was, known := external[d.ResourceName]; known && was != d.ExternalResourceProvider {
			errs = append(errs, field.Invalid(at.Child("externalResourceProvider"), d.ExternalResourceProvider,
				"must be the same in all entries of "+d.ResourceName+": one device plugin offers a resource"))
		}
		external[d.ResourceName] = d.ExternalResourceProvider
		kind := strings.ToLower(d.PCIVendorSelector)
		if was, known := of[kind]; known && was != d.ResourceName && !d.ExternalResourceProvider {
			errs = append(errs, field.Invalid(at.Child("pciVendorSelector"), d.PCIVendorSelector, "is a device of "+was+" already"))
		}
		if !d.ExternalResourceProvider {
			of[kind] = d.ResourceName
		}
	}
	return errs
}

func guestDefaults(c *v1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q := c.CPURequest; q != nil {
		errs = append(errs, fieldcheck.Quantity(*q, path.Child("cpuRequest"), quantity.CPUs(*q))...)
	}
	if l := c.LiveUpdateConfiguration; l != nil && l.MaxGuest != nil {
		errs = append(errs, fieldcheck.Quantity(*l.MaxGuest, path.Child("liveUpdateConfiguration", "maxGuest"), quantity.Memory(*l.MaxGuest))...)
	}
	if d, at := c.DeveloperConfiguration, path.Child("developerConfiguration"); d != nil {
		if m := d.MemoryOvercommit; m != 0 && m < minOvercommit {
			errs = append(errs, field.Invalid(at.Child("memoryOvercommit"), m, fmt.Sprintf("must be at least %d", minOvercommit)))
		}
		errs = append(errs, fieldcheck.Labels(d.NodeSelectors, at.Child("nodeSelectors"))...)
	}
	if c.DefaultRuntimeClass != "" {
		errs = append(errs, fieldcheck.DNSSubdomain(c.DefaultRuntimeClass, path.Child("defaultRuntimeClass"))...)
	}
	if t, at := c.TLSConfiguration, path.Child("tlsConfiguration"); t != nil {
		errs = append(errs, fieldcheck.OneOf(t.MinTLSVersion, at.Child("minTLSVersion"), v1.VersionTLS10, v1.VersionTLS11, v1.VersionTLS12, v1.VersionTLS13)...)
		if t.MinTLSVersion == v1.VersionTLS13 && len(t.Ciphers) > 0 {
			errs = append(errs, field.Forbidden(at.Child("ciphers"), "can't be chosen where minTLSVersion is VersionTLS13"))
		}
		for i, name := range t.Ciphers {
			if _, err := clusterconfig.Cipher(name); err != nil {
				errs = append(errs, field.Invalid(at.Child("ciphers").Index(i), name, err.Error()))
			}
		}
	}
	return errs
}

// minOvercommit is the lowest memoryOvercommit. The CRD has it, too.
const minOvercommit = 10

func machineTypes(c *v1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	errs := vmispec.ValidateMachineType(c.MachineType, path.Child("machineType"))
	errs = append(errs, patterns(c.EmulatedMachines, path.Child("emulatedMachines"))...)
	if a := c.ArchitectureConfiguration; a != nil && a.Amd64 != nil {
		at := path.Child("architectureConfiguration", "amd64")
		errs = append(errs, vmispec.ValidateMachineType(a.Amd64.MachineType, at.Child("machineType"))...)
		errs = append(errs, patterns(a.Amd64.EmulatedMachines, at.Child("emulatedMachines"))...)
	}
	return errs
}

func patterns(list []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, pattern := range list {
		if _, err := gopath.Match(pattern, ""); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), pattern, "must be a pattern such as pc-q35*"))
		}
	}
	return errs
}

func networkBindings(list networkbinding.Registered, path *field.Path) field.ErrorList {
	if len(list) > networkbinding.Max {
		return field.ErrorList{field.TooMany(path, len(list), networkbinding.Max)}
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, plugin := path.Key(name), list[name]
		errs = append(errs, fieldcheck.DNSLabel(name, at)...)
		var problem *networkbinding.Problem
		if errors.As(networkbinding.Check(&plugin), &problem) {
			errs = append(errs, field.Forbidden(at.Child(problem.Field[0], problem.Field[1:]...), problem.Text))
		}
	}
	return errs
}

func workloadUpdate(s *v1.KubeVirtWorkloadUpdateStrategy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, method := range s.WorkloadUpdateMethods {
		errs = append(errs, fieldcheck.OneOf(method, path.Child("workloadUpdateMethods").Index(i), v1.WorkloadUpdateMethodLiveMigrate, v1.WorkloadUpdateMethodEvict)...)
	}
	if size := s.BatchEvictionSize; size != nil && *size < 1 {
		errs = append(errs, field.Invalid(path.Child("batchEvictionSize"), *size, "must be at least 1"))
	}
	if every := s.BatchEvictionInterval; every != nil && every.Duration < time.Second {
		errs = append(errs, field.Invalid(path.Child("batchEvictionInterval"), every.Duration.String(), "must be at least 1s"))
	}
	return errs
}
