package instancetype

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/object/quantity"
)

// maxSize limits a type or preference in bytes: each VM that uses one has a copy of it.
const maxSize = 64 << 10

// CheckType returns the errors of a type for any VM. Drydock's support is checked for the resulting VM.
func CheckType(t *instancetypev1.VirtualMachineInstancetypeSpec) field.ErrorList {
	errs := size(t)
	if sockets := t.CPU.MaxSockets; sockets != nil {
		errs = append(errs, positive(int64(*sockets), specPath.Child("cpu", "maxSockets"))...)
	}
	memory, path := &t.Memory, specPath.Child("memory")
	if !memory.Guest.IsZero() {
		errs = append(errs, amount(memory.Guest, path.Child("guest"))...)
	}
	if most := memory.MaxGuest; most != nil {
		if errs = append(errs, amount(*most, path.Child("maxGuest"))...); most.Cmp(memory.Guest) < 0 {
			errs = append(errs, field.Invalid(path.Child("maxGuest"), most.String(), "must not be less than memory.guest, which is "+memory.Guest.String()))
		}
	}
	if pages := memory.Hugepages; pages != nil {
		if _, err := quantity.Pages(pages.PageSize); err != nil {
			errs = append(errs, field.Invalid(path.Child("hugepages", "pageSize"), pages.PageSize, err.Error()))
		}
	}
	if p := memory.OvercommitPercent; p < 0 || p > 100 {
		errs = append(errs, field.Invalid(path.Child("overcommitPercent"), p, "must be between 0 and 100"))
	}
	if memory.OvercommitPercent > 0 && memory.Hugepages != nil {
		errs = append(errs, field.Forbidden(path.Child("overcommitPercent"), "hugepages can't be overcommitted"))
	}
	errs = append(errs, metav1validation.ValidateLabels(t.NodeSelector, specPath.Child("nodeSelector"))...)
	return append(errs, annotations(t.Annotations)...)
}

// CheckPreference returns the errors of a preference for any VM.
func CheckPreference(p *instancetypev1.VirtualMachinePreferenceSpec) field.ErrorList {
	errs := size(p)
	errs = append(errs, checkSpread(p)...)
	if f := p.Firmware; f != nil && value(f.PreferredUseBios) && (f.PreferredEfi != nil || value(f.DeprecatedPreferredUseEfi)) {
		errs = append(errs, field.Forbidden(specPath.Child("firmware", "preferredUseBios"), "a guest has either a BIOS or EFI; prefer one of them"))
	}
	if seconds := p.PreferredTerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		errs = append(errs, field.Invalid(specPath.Child("preferredTerminationGracePeriodSeconds"), *seconds, "must not be negative"))
	}
	if needs := p.Requirements; needs != nil {
		path := specPath.Child("requirements")
		if needs.CPU != nil {
			errs = append(errs, positive(int64(needs.CPU.Guest), path.Child("cpu", "guest"))...)
		}
		if needs.Memory != nil {
			errs = append(errs, amount(needs.Memory.Guest, path.Child("memory", "guest"))...)
		}
	}
	return append(errs, annotations(p.Annotations)...)
}

func checkSpread(p *instancetypev1.VirtualMachinePreferenceSpec) field.ErrorList {
	if p.CPU == nil {
		return nil
	}
	var errs field.ErrorList
	path := specPath.Child("cpu")
	if kind := value(p.CPU.PreferredCPUTopology); kind != "" && !slices.Contains(topologies(), kind) {
		errs = append(errs, field.NotSupported(path.Child("preferredCPUTopology"), kind, topologies()))
	}
	options := p.CPU.SpreadOptions
	if options == nil {
		return errs
	}
	path = path.Child("spreadOptions")
	if across := options.Across; across != nil && !slices.Contains(spreadings, *across) {
		errs = append(errs, field.NotSupported(path.Child("across"), *across, spreadings))
	}
	if options.Ratio == nil {
		return errs
	}
	errs = append(errs, positive(int64(*options.Ratio), path.Child("ratio"))...)
	if value(options.Across) == instancetypev1.SpreadAcrossCoresThreads && *options.Ratio != threadsOfCore {
		errs = append(errs, field.Invalid(path.Child("ratio"), *options.Ratio, "must be 2 across CoresThreads: that is how many threads a core has"))
	}
	return errs
}

func topologies() []instancetypev1.PreferredCPUTopology {
	all := slices.Concat(slices.Collect(maps.Keys(current)), slices.Collect(maps.Values(current)))
	slices.Sort(all)
	return all
}

var spreadings = []instancetypev1.SpreadAcross{
	instancetypev1.SpreadAcrossSocketsCores, instancetypev1.SpreadAcrossCoresThreads, instancetypev1.SpreadAcrossSocketsCoresThreads,
}

// WarnType warns of types with which no VM starts, and of deprecated fields.
func WarnType(t *instancetypev1.VirtualMachineInstancetypeSpec) []string {
	var warnings []string
	if t.Memory.Guest.IsZero() {
		warnings = append(warnings, fmt.Sprintf("%s is 0: a VM with this instance type can't start", specPath.Child("memory", "guest")))
	}
	if t.LaunchSecurity != nil {
		warnings = append(warnings, "spec.launchSecurity is deprecated: a preference has preferredLaunchSecurity")
	}
	return warnings
}

// DeprecatedPreference warns of deprecated fields.
func DeprecatedPreference(p *instancetypev1.VirtualMachinePreferenceSpec) []string {
	var warnings []string
	if p.CPU != nil {
		if kind := value(p.CPU.PreferredCPUTopology); current[kind] != "" {
			warnings = append(warnings, fmt.Sprintf("spec.cpu.preferredCPUTopology: %s is deprecated: write %s", kind, current[kind]))
		}
	}
	if f := p.Firmware; f != nil {
		if f.DeprecatedPreferredUseEfi != nil {
			warnings = append(warnings, "spec.firmware.preferredUseEfi is deprecated: write preferredEfi: {}")
		}
		if f.DeprecatedPreferredUseSecureBoot != nil {
			warnings = append(warnings, "spec.firmware.preferredUseSecureBoot is deprecated: write preferredEfi: {secureBoot: …}")
		}
	}
	return warnings
}

func size(spec any) field.ErrorList {
	text, err := json.Marshal(spec)
	if err != nil {
		return field.ErrorList{field.InternalError(specPath, err)}
	}
	if len(text) > maxSize {
		return field.ErrorList{field.TooLong(specPath, "", maxSize)}
	}
	return nil
}

func positive(number int64, path *field.Path) field.ErrorList {
	if number > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, number, "must be greater than 0")}
}

func amount(q resource.Quantity, path *field.Path) field.ErrorList {
	if err := quantity.Memory(q); err != nil {
		return field.ErrorList{field.Invalid(path, q.String(), err.Error())}
	}
	return nil
}

// annotations refuses annotations that Drydock's components own, since these become a VMI's.
func annotations(all map[string]string) field.ErrorList {
	path := specPath.Child("annotations")
	errs := apivalidation.ValidateAnnotations(all, path)
	for _, key := range hotplug.ReservedAnnotations() {
		if _, there := all[key]; there {
			errs = append(errs, field.Forbidden(path.Key(key), hotplug.ReservedRefusal))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}
