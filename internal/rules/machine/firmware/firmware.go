// Package firmware holds the rules of a VM's firmware UUID: which objects get a random one, which get the legacy one,
// and how a user may change it. It edits the object that it is given, and must not access the cluster.
//
//	object                                   UUID             set by
//	new VM or stand-alone VMI without one    random           admission
//	existing VM without one                  Legacy(VM name)  VM controller
//	restored VM without one                  Legacy(VM name)  restore, before the VM is written
//	any VM or VMI with one                   unchanged        nobody
package firmware

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// legacyNamespace is that of the UUIDs before they were persisted. It never changes: these UUIDs identify guests.
var legacyNamespace = uuid.MustParse("6a1a24a1-4061-4607-8bf4-a3963d0c5895")

// Legacy returns the UUID that a VM of this name had before UUIDs were persisted: version 5, of the name alone, so
// equal in every namespace and cluster.
func Legacy(vmName string) types.UID {
	return types.UID(uuid.NewSHA1(legacyNamespace, []byte(vmName)).String())
}

// New returns a random UUID, version 4.
func New() types.UID { return types.UID(uuid.NewString()) }

// Missing reports whether spec has no firmware UUID.
func Missing(spec *v1.VirtualMachineInstanceSpec) bool {
	return spec.Domain.Firmware == nil || spec.Domain.Firmware.UUID == ""
}

// Set sets the firmware UUID of spec.
func Set(spec *v1.VirtualMachineInstanceSpec, uid types.UID) {
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &v1.Firmware{}
	}
	spec.Domain.Firmware.UUID = uid
}

// Create gives a new object a random UUID unless it has one, and reports whether it changed spec.
func Create(spec *v1.VirtualMachineInstanceSpec) bool {
	if !Missing(spec) {
		return false
	}
	Set(spec, New())
	return true
}

// Persist gives an existing or restored VM its legacy UUID unless it has one, and reports whether it changed spec.
func Persist(spec *v1.VirtualMachineInstanceSpec, vmName string) bool {
	if !Missing(spec) {
		return false
	}
	Set(spec, Legacy(vmName))
	return true
}

// ValidateUpdate refuses the removal of a UUID. path is that of the specs in their object ("spec.template.spec").
func ValidateUpdate(oldSpec, newSpec *v1.VirtualMachineInstanceSpec, path *field.Path) *field.Error {
	if Missing(oldSpec) || !Missing(newSpec) {
		return nil
	}
	return field.Forbidden(path.Child("domain", "firmware", "uuid"),
		"the firmware UUID can be changed but not removed; the VM has "+string(oldSpec.Domain.Firmware.UUID))
}

// ValidateFormat refuses an invalid UUID.
func ValidateFormat(spec *v1.VirtualMachineInstanceSpec, path *field.Path) *field.Error {
	if Missing(spec) {
		return nil
	}
	text := string(spec.Domain.Firmware.UUID)
	if _, err := uuid.Parse(text); err != nil || len(text) != 36 {
		return field.Invalid(path.Child("domain", "firmware", "uuid"), text,
			"must be a UUID such as "+string(Legacy("example")))
	}
	return nil
}
