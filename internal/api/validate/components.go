package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// ownWorkloads judges what the KubeVirt object says of Drydock's own workloads. What passes here must be one that the
// API server takes in a pod template: what it refuses later only the KubeVirt object's condition tells.
func ownWorkloads(spec *v1.KubeVirtSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, secret := range spec.ImagePullSecrets {
		errs = append(errs, subdomain(secret.Name, path.Child("imagePullSecrets").Index(i).Child("name"))...)
	}
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

func nodePlacement(p *v1.NodePlacement, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := labelSet(p.NodeSelector, path.Child("nodeSelector"))
	errs = append(errs, affinity(p.Affinity, path.Child("affinity"))...)
	for i := range p.Tolerations {
		errs = append(errs, toleration(&p.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	return errs
}
