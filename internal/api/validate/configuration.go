package validate

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/selinux"
)

// configuration judges the values of what is supported of the KubeVirt object.
func configuration(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	errs := pullPolicy(spec.ImagePullPolicy, path.Child("imagePullPolicy"))
	c, path := &spec.Configuration, path.Child("configuration")
	errs = append(errs, pullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	if s := c.VMRolloutStrategy; s != nil {
		errs = append(errs, oneOf(*s, path.Child("vmRolloutStrategy"),
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
	if a := c.ArchitectureConfiguration; a != nil && a.Amd64 != nil && a.Amd64.MachineType != "" {
		errs = append(errs, machineType(a.Amd64.MachineType, path.Child("architectureConfiguration", "amd64", "machineType"))...)
	}
	if t := c.SELinuxLauncherType; t != "" && !selinux.ValidType(t) {
		errs = append(errs, field.Invalid(path.Child("selinuxLauncherType"), t, "must be the name of an SELinux type, such as container_t"))
	}
	if c.CPUModel != "" {
		errs = append(errs, cpuModel(c.CPUModel, path.Child("cpuModel"))...)
	}
	return append(errs, migrations(c.MigrationConfiguration, path.Child("migrations"))...)
}
