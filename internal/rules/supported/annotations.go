package supported

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// annotationTable is about annotations of a VirtualMachineInstance, or of the template that it is made of, that
// change what a guest is or what becomes of it. Others are of no effect.
var annotationTable = table{
	v1.IgnitionAnnotation: noted("Ignition's configuration, which the guest finds as `opt/com.coreos/config` of QEMU's firmware configuration; " +
		"a running guest keeps what it has started with"),
	v1.AllowPodBridgeNetworkLiveMigrationAnnotation: yes(),
	v1.DeprecatedNonRootVMIAnnotation:               noted("without effect: QEMU never runs as root"),
	layout.HookSidecarsAnnotation:                   no("a hook changes the definition that libvirt has of a guest, and there is no libvirt here; use the spec's fields"),
	v1.PlacePCIDevicesOnRootComplex:                 off().because("disks and interfaces are behind PCI ports, where they can be plugged; `pciAddress` chooses the port"),
}

// Annotations returns which annotations of a VMI or of a template are not supported.
func Annotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		e, found := annotationTable[name]
		if found && !e.allows(reflect.ValueOf(annotations[name])) {
			errs = append(errs, field.Forbidden(path.Key(name), NotSupported+": "+e.note))
		}
	}
	return errs
}
