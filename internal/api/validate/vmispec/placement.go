package vmispec

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/network/ipaddress"
)

func placement(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := fieldcheck.NodePlacement(spec.NodeSelector, spec.Affinity, spec.Tolerations, path)
	for i := range spec.TopologySpreadConstraints {
		errs = append(errs, fieldcheck.TopologySpread(&spec.TopologySpreadConstraints[i], path.Child("topologySpreadConstraints").Index(i))...)
	}
	if spec.Hostname != "" {
		errs = append(errs, fieldcheck.DNSLabel(spec.Hostname, path.Child("hostname"))...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, fieldcheck.DNSLabel(spec.Subdomain, path.Child("subdomain"))...)
	}
	errs = append(errs, serviceAccount(spec, path)...)
	if spec.PriorityClassName != "" {
		errs = append(errs, fieldcheck.DNSSubdomain(spec.PriorityClassName, path.Child("priorityClassName"))...)
	}
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		switch at := path.Child("terminationGracePeriodSeconds"); {
		case *s < 0:
			errs = append(errs, field.Invalid(at, *s, "must not be negative"))
		case *s > maxGracePeriod:
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("must not be greater than %d", maxGracePeriod)))
		}
	}
	return append(errs, dns(spec, path)...)
}

// maxGracePeriod, in seconds, is longer than any guest lives. A larger one could overflow in nanoseconds, and the
// guest would get no time at all.
const maxGracePeriod = math.MaxInt32

func dns(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := fieldcheck.OneOf(spec.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	config, path := spec.DNSConfig, path.Child("dnsConfig")
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		errs = append(errs, field.Required(path.Child("nameservers"), "the dnsPolicy None leaves the guest with these alone"))
	}
	for i, server := range config.Nameservers {
		if address, err := ipaddress.Parse(server); err != nil || address.Zone() != "" {
			errs = append(errs, field.Invalid(path.Child("nameservers").Index(i), server, "must be an IP address"))
		}
	}
	return errs
}

// A pod has only one service account, so it must be the one whose token the guest gets.
func serviceAccount(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if spec.ServiceAccountName == "" {
		return nil
	}
	path = path.Child("serviceAccountName")
	errs := fieldcheck.DNSSubdomain(spec.ServiceAccountName, path)
	for i := range spec.Volumes {
		if account := spec.Volumes[i].ServiceAccount; account != nil && account.ServiceAccountName != spec.ServiceAccountName {
			return append(errs, field.Invalid(path, spec.ServiceAccountName, fmt.Sprintf(
				"the guest gets the token of %s by volume %s: both must name the same service account", account.ServiceAccountName, spec.Volumes[i].Name)))
		}
	}
	return errs
}
