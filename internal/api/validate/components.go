package validate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// A setting must be valid in a pod template: only the KubeVirt object's condition would report the API server's refusal.
func ownWorkloads(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, secret := range spec.ImagePullSecrets {
		errs = append(errs, fieldcheck.DNSSubdomain(secret.Name, path.Child("imagePullSecrets").Index(i).Child("name"))...)
	}
	for _, namespace := range []struct{ child, name string }{
		{"monitorNamespace", spec.MonitorNamespace}, {"serviceMonitorNamespace", spec.ServiceMonitorNamespace},
	} {
		if namespace.name == "" {
			continue
		}
		errs = append(errs, fieldcheck.DNSLabel(namespace.name, path.Child(namespace.child))...)
	}
	if spec.MonitorAccount != "" {
		errs = append(errs, fieldcheck.DNSSubdomain(spec.MonitorAccount, path.Child("monitorAccount"))...)
	}
	errs = append(errs, customization(&spec.CustomizeComponents, path.Child("customizeComponents"))...)
	if c := spec.Infra; c != nil {
		if r := c.Replicas; r != nil && *r == 0 {
			errs = append(errs, field.Invalid(path.Child("infra", "replicas"), *r,
				"must be at least 1: nobody would follow this object any more"))
		}
		errs = append(errs, nodePlacement(c.NodePlacement, path.Child("infra", "nodePlacement"))...)
	}
	if c := spec.Workloads; c != nil {
		errs = append(errs, nodePlacement(c.NodePlacement, path.Child("workloads", "nodePlacement"))...)
	}
	return errs
}

// customization validates patches as far as that is possible without their targets.
func customization(c *v1.CustomizeComponents, path *field.Path) field.ErrorList {
	if len(c.Patches) > components.MaxPatches {
		return field.ErrorList{field.TooMany(path.Child("patches"), len(c.Patches), components.MaxPatches)}
	}
	var errs field.ErrorList
	for i := range c.Patches {
		if err := components.CheckPatch(&c.Patches[i]); err != nil {
			errs = append(errs, field.Forbidden(path.Child("patches").Index(i).Child("patch"), err.Error()))
		}
	}
	return errs
}

// customizationWarnings returns warnings about customizations without an effect on any target: patches, and flags
// that can't be set.
func customizationWarnings(c *v1.CustomizeComponents, path *field.Path) []string {
	var all []string
	for i := range c.Patches {
		if why := components.Ineffective(&c.Patches[i]); why != "" {
			all = append(all, supported.Warning(path.Child("patches").Index(i), why))
		}
	}
	flags := components.Flags(c.Flags)
	for _, at := range []struct{ child, component string }{{"api", components.API}, {"controller", components.Controller}, {"handler", components.Handler}} {
		for _, name := range slices.Sorted(maps.Keys(flags[at.component])) {
			if !components.Settable(at.component, name) {
				all = append(all, supported.Warning(path.Child("flags", at.child).Key(name), "Drydock lets this object set no such flag of "+at.component))
			}
		}
	}
	return all[:min(len(all), components.MaxPatches)]
}

func nodePlacement(p *v1.NodePlacement, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	return fieldcheck.NodePlacement(p.NodeSelector, p.Affinity, p.Tolerations, path)
}

func rates(c *v1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, of := range []struct {
		name   string
		config *v1.ReloadableComponentConfiguration
	}{
		{"apiConfiguration", c.APIConfiguration}, {"webhookConfiguration", c.WebhookConfiguration},
		{"controllerConfiguration", c.ControllerConfiguration}, {"handlerConfiguration", c.HandlerConfiguration},
	} {
		if of.config == nil || of.config.RestClient == nil || of.config.RestClient.RateLimiter == nil {
			continue
		}
		bucket, at := of.config.RestClient.RateLimiter.TokenBucketRateLimiter, path.Child(of.name, "restClient", "rateLimiter", "tokenBucketRateLimiter")
		if bucket != nil && bucket.QPS != 0 && bucket.QPS < minQPS {
			errs = append(errs, field.Invalid(at.Child("qps"), bucket.QPS, fmt.Sprintf("must be at least %d, or 0 for no limit", minQPS)))
		}
		if bucket != nil && bucket.Burst < 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), bucket.Burst, "must not be negative"))
		}
	}
	return errs
}

// With fewer requests, a starting component takes minutes to fill its caches.
const minQPS = 5
