package vmi

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// difference returns the merge patch between two versions of a VMI, on condition that nobody wrote in between, nil if they
// are equal. Of the spec only the volumes may differ. It omits equal parts first, since the patch encodes both versions.
func difference(from, to *v1.VirtualMachineInstance) (client.Patch, error) {
	a, b := *from, *to
	moved := !equal(&a.Spec.Volumes, &b.Spec.Volumes)
	a.Spec, b.Spec = volumesOf(&a.Spec, moved), volumesOf(&b.Spec, moved)
	if equal(&a.Status, &b.Status) {
		if !moved && equal(&a.ObjectMeta, &b.ObjectMeta) {
			return nil, nil
		}
		a.Status, b.Status = v1.VirtualMachineInstanceStatus{}, v1.VirtualMachineInstanceStatus{}
	}
	if equal(&a.Annotations, &b.Annotations) {
		a.Annotations, b.Annotations = nil, nil
	}
	data, err := client.MergeFromWithOptions(&a, client.MergeFromWithOptimisticLock{}).Data(&b)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of VMI %s/%s: %w", from.Namespace, from.Name, err)
	}
	return client.RawPatch(types.MergePatchType, data), nil
}

func volumesOf(spec *v1.VirtualMachineInstanceSpec, differ bool) v1.VirtualMachineInstanceSpec {
	if !differ {
		return v1.VirtualMachineInstanceSpec{}
	}
	return v1.VirtualMachineInstanceSpec{Volumes: spec.Volumes}
}

// Nil and empty lists are equal. Most values are identical, which reflect finds in a quarter of equality's time.
func equal[T any](a, b *T) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
