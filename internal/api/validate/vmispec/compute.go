package vmispec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

const maxVCPUs = machine.MaxVCPUs

// minGuestMemory is less than any guest can start with.
var minGuestMemory = resource.MustParse("1Mi")

func compute(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	domain, path := &spec.Domain, path.Child("domain")
	errs := resources(&domain.Resources, path.Child("resources"))
	errs = append(errs, memory(domain, path)...)
	if domain.CPU != nil {
		errs = append(errs, cpu(domain.CPU, path.Child("cpu"))...)
		errs = append(errs, dedicated(spec, path)...)
	}
	if domain.Machine != nil {
		errs = append(errs, ValidateMachineType(domain.Machine.Type, path.Child("machine", "type"))...)
	}
	if p := domain.RebootPolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, path.Child("rebootPolicy"), v1.RebootPolicyReboot, v1.RebootPolicyTerminate)...)
	}
	errs = append(errs, ioThreads(domain, path.Child("ioThreads", "supplementalPoolThreadCount"))...)
	return append(errs, hyperv(domain, path)...)
}

func resources(r *v1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := quantities(r.Requests, path.Child("requests"))
	errs = append(errs, quantities(r.Limits, path.Child("limits"))...)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Child(string(name)), request.String(),
				fmt.Sprintf("must be less than or equal to the %s limit of %s", name, limit.String())))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limit, request := r.Limits[name], r.Requests[name]
		if _, requested := r.Requests[name]; requested && launcherpod.Countable(name) && request.Cmp(limit) < 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Child(string(name)), request.String(),
				fmt.Sprintf("must be equal to the %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

func quantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, q := path.Child(string(name)), list[name]
		errs = append(errs, resourceName(name, at)...)
		errs = append(errs, fieldcheck.Quantity(q, at, quantity.Share(name, q, launcherpod.Countable(name)))...)
	}
	return errs
}

func resourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
		return nil
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		size := strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if pages, err := quantity.Pages(size); err != nil || pages.String() != size {
			return field.ErrorList{field.Invalid(path, name, "must be hugepages-2Mi or hugepages-1Gi")}
		}
		return nil
	case !strings.Contains(string(name), "/"):
		return field.ErrorList{field.Invalid(path, name, "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain, such as example.com/device")}
	}
	return fieldcheck.Problems(string(name), path, validation.IsQualifiedName(string(name)))
}

func memory(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	guest, errs := guestMemory(domain, path)
	m := domain.Memory
	if m == nil {
		return errs
	}
	at := path.Child("memory", "guest")
	if limit, limited := domain.Resources.Limits[corev1.ResourceMemory]; limited && guest != nil && guest.Cmp(limit) > 0 {
		errs = append(errs, field.Invalid(at, guest.String(),
			fmt.Sprintf("must be less than or equal to the memory limit of %s", limit.String())))
	}
	if most, at := m.MaxGuest, path.Child("memory", "maxGuest"); most != nil {
		errs = append(errs, fieldcheck.Quantity(*most, at, quantity.Memory(*most))...)
		if guest != nil && most.Cmp(*guest) < 0 {
			errs = append(errs, field.Invalid(at, most.String(), fmt.Sprintf("must be at least the guest's memory, %s", guest.String())))
		}
	}
	if o := m.ReservedOverhead; o != nil && o.AddedOverhead != nil {
		errs = append(errs, fieldcheck.Quantity(*o.AddedOverhead, path.Child("memory", "reservedOverhead", "addedOverhead"),
			quantity.Share(corev1.ResourceMemory, *o.AddedOverhead, false))...)
	}
	if m.Hugepages == nil {
		return errs
	}
	at = path.Child("memory", "hugepages", "pageSize")
	size, err := quantity.Pages(m.Hugepages.PageSize)
	if err != nil {
		return append(errs, field.Invalid(at, m.Hugepages.PageSize, err.Error()))
	}
	if guest != nil && guest.Value()%size.Value() != 0 {
		errs = append(errs, field.Invalid(at, m.Hugepages.PageSize,
			fmt.Sprintf("the guest's memory, %s, must be a multiple of the page size", guest.String())))
	}
	return errs
}

// guestMemory returns nil if the value can't be used in comparisons.
func guestMemory(domain *v1.DomainSpec, path *field.Path) (*resource.Quantity, field.ErrorList) {
	at := path.Child("memory", "guest")
	if domain.Memory == nil || domain.Memory.Guest == nil {
		return nil, nil
	}
	guest := domain.Memory.Guest
	if err := quantity.Memory(*guest); err != nil {
		return nil, fieldcheck.Quantity(*guest, at, err)
	}
	if guest.Cmp(minGuestMemory) < 0 {
		return nil, field.ErrorList{field.Invalid(at, guest.String(), "must be at least "+minGuestMemory.String())}
	}
	return guest, nil
}

var cpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// ValidateCPUModel validates the name of a CPU model, also that of the KubeVirt object.
func ValidateCPUModel(model string, path *field.Path) field.ErrorList {
	return fieldcheck.Pattern(model, path, cpuName, "must be host-model, host-passthrough or the name of a CPU model")
}

func cpu(cpu *v1.CPU, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sockets := max(cpu.Sockets, cpu.MaxSockets, 1)
	total := uint64(max(cpu.Cores, 1)) * uint64(sockets) * uint64(max(cpu.Threads, 1))
	if total > maxVCPUs || cpu.Cores > maxVCPUs || cpu.Threads > maxVCPUs || sockets > maxVCPUs {
		errs = append(errs, field.Invalid(path, total,
			fmt.Sprintf("sockets × cores × threads must be at most %d", maxVCPUs)))
	}
	if cpu.MaxSockets != 0 && cpu.MaxSockets < cpu.Sockets {
		errs = append(errs, field.Invalid(path.Child("maxSockets"), cpu.MaxSockets,
			fmt.Sprintf("must be at least the number of sockets, %d", cpu.Sockets)))
	}
	errs = append(errs, ValidateCPUModel(cpu.Model, path.Child("model"))...)
	for i, feature := range cpu.Features {
		at := path.Child("features").Index(i)
		if feature.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "names a CPU feature"))
		}
		errs = append(errs, fieldcheck.Pattern(feature.Name, at.Child("name"), cpuName, "must be the name of a CPU feature")...)
		errs = append(errs, fieldcheck.OneOf(feature.Policy, at.Child("policy"), "force", "require", "optional", "disable", "forbid")...)
	}
	return errs
}

// dedicated refuses resources other than those that a guest with dedicated CPUs gets: a CPU for each virtual one, and
// limits that are equal to the requests.
func dedicated(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	domain := &spec.Domain
	if !domain.CPU.DedicatedCPUPlacement {
		if domain.CPU.IsolateEmulatorThread {
			return field.ErrorList{field.Invalid(path.Child("cpu", "isolateEmulatorThread"), true, "needs dedicatedCpuPlacement")}
		}
		return nil
	}
	var errs field.ErrorList
	cpus := resource.NewQuantity(int64(machine.VCPUs(machine.Topology(spec))), resource.DecimalSI)
	for _, list := range []struct {
		name      string
		resources corev1.ResourceList
	}{{"requests", domain.Resources.Requests}, {"limits", domain.Resources.Limits}} {
		if q, set := list.resources[corev1.ResourceCPU]; set && q.Cmp(*cpus) != 0 {
			errs = append(errs, field.Invalid(path.Child("resources", list.name, "cpu"), q.String(),
				fmt.Sprintf("must be %s, the number of virtual CPUs, with dedicatedCpuPlacement", cpus)))
		}
	}
	request, requested := domain.Resources.Requests[corev1.ResourceMemory]
	if limit, limited := domain.Resources.Limits[corev1.ResourceMemory]; requested && limited && request.Cmp(limit) < 0 {
		errs = append(errs, field.Invalid(path.Child("resources", "requests", "memory"), request.String(),
			fmt.Sprintf("must be equal to the memory limit of %s with dedicatedCpuPlacement", limit.String())))
	}
	return errs
}

const maxIOThreads = 64

func ioThreads(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	pooled := domain.IOThreadsPolicy != nil && *domain.IOThreadsPolicy == v1.IOThreadsPolicySupplementalPool
	switch t := domain.IOThreads; {
	case pooled && (t == nil || t.SupplementalPoolThreadCount == nil):
		return field.ErrorList{field.Required(path, "says how many threads the supplementalPool has")}
	case t == nil || t.SupplementalPoolThreadCount == nil:
		return nil
	case !pooled:
		return field.ErrorList{field.Forbidden(path, "belongs to the ioThreadsPolicy supplementalPool")}
	case *t.SupplementalPoolThreadCount < 1 || *t.SupplementalPoolThreadCount > maxIOThreads:
		return field.ErrorList{field.Invalid(path, *t.SupplementalPoolThreadCount, fmt.Sprintf("must be between 1 and %d", maxIOThreads))}
	}
	return nil
}

// ValidateMachineType accepts q35 and its versions, including those of other builds of QEMU.
func ValidateMachineType(name string, path *field.Path) field.ErrorList {
	if name == "" || machinetype.Known(name) || machinetype.Foreign(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, machinetype.ErrUnknown.Error())}
}

func hyperv(domain *v1.DomainSpec, domainPath *field.Path) field.ErrorList {
	features, path := domain.Features, domainPath.Child("features", "hyperv")
	if features == nil || features.Hyperv == nil {
		return nil
	}
	var errs field.ErrorList
	for _, unmet := range machine.UnmetHyperv(domain) {
		errs = append(errs, field.Forbidden(domainPath.Child(unmet.Of[0], unmet.Of[1:]...),
			fmt.Sprintf("needs %s, which is switched off", domainPath.Child(unmet.Needs[0], unmet.Needs[1:]...))))
	}
	if s := features.Hyperv.Spinlocks; s != nil && s.Retries != nil && *s.Retries < 4096 {
		errs = append(errs, field.Invalid(path.Child("spinlocks", "spinlocks"), *s.Retries, "must be at least 4096"))
	}
	if v := features.Hyperv.VendorID; v != nil && len(v.VendorID) > 12 {
		errs = append(errs, field.TooLong(path.Child("vendorid", "vendorid"), v.VendorID, 12))
	}
	return errs
}
