package clone

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/snapshot/vmpatch"
)

type part struct {
	path    string
	to      any
	changed bool
}

// mayPatch are the parts of a VM that belong to its owner.
var mayPatch = []string{"/spec", "/metadata/labels", "/metadata/annotations"}

// parse parses the clone's own patches. The restore checks their effect, and admission the VM. The error has all faults.
func parse(texts []string) ([]vmpatch.Operation, error) {
	operations, err := vmpatch.Parse(texts)
	if len(operations) == 0 {
		return nil, err
	}
	faults := []error{err}
	for i := range texts {
		// Each alone, since some may be invalid.
		one, err := vmpatch.Parse(texts[i : i+1])
		if err == nil && !slices.ContainsFunc(mayPatch, func(path string) bool { return one[0].Path == path || strings.HasPrefix(one[0].Path, path+"/") }) {
			faults = append(faults, fmt.Errorf("patch %d is of %q; a clone's patches are of %s", i+1, one[0].Path, strings.Join(mayPatch, ", ")))
		}
	}
	return operations, errors.Join(faults...)
}

// patches returns the restore's patches of the source's manifest: first by the clone's fields, then the clone's patches.
func patches(c *clonev1.VirtualMachineClone, source *snapshotv1.VirtualMachine) ([]string, error) {
	own, wrong := parse(c.Spec.Patches)
	spec := &source.Spec.Template.Spec
	nics, missing := interfaces(c, spec.Domain.Devices.Interfaces)
	if err := errors.Join(wrong, missing); err != nil {
		return nil, err
	}
	meta := source.Spec.Template.ObjectMeta
	var out []vmpatch.Operation
	// Parts are written whole: the number of patches does not depend on the number of labels.
	for _, f := range []part{
		filtered("/metadata/labels", source.Labels, c.Spec.LabelFilters),
		filtered("/metadata/annotations", source.Annotations, c.Spec.AnnotationFilters),
		filtered("/spec/template/metadata/labels", meta.Labels, c.Spec.Template.LabelFilters),
		filtered("/spec/template/metadata/annotations", meta.Annotations, c.Spec.Template.AnnotationFilters),
		{"/spec/template/spec/domain/firmware", firmwareOf(c, spec), true},
		{"/spec/template/spec/domain/devices/interfaces", nics, len(nics) > 0},
	} {
		if f.changed {
			out = append(out, vmpatch.Operation{Op: "add", Path: f.path, Value: f.to})
		}
	}
	return vmpatch.Texts(append(out, own...))
}

func filtered(path string, was map[string]string, filters []string) part {
	to := map[string]string{}
	for key, value := range was {
		if copied(key, filters) {
			to[key] = value
		}
	}
	return part{path, to, !maps.Equal(was, to)}
}

// copied keys match one filter, and none that begins with "!". Without filters everything is copied.
func copied(key string, filters []string) bool {
	matched := len(filters) == 0
	for _, filter := range filters {
		pattern, negated := strings.CutPrefix(filter, "!")
		beginning, open := strings.CutSuffix(pattern, "*")
		if key != pattern && (!open || !strings.HasPrefix(key, beginning)) {
			continue
		}
		if negated {
			return false
		}
		matched = true
	}
	return matched
}

// A serial is replaced by the clone's UID, which is unique.
func firmwareOf(c *clonev1.VirtualMachineClone, source *v1.VirtualMachineInstanceSpec) *v1.Firmware {
	spec := source.DeepCopy()
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &v1.Firmware{}
	}
	if identity.Of(identity.FirmwareUUID, identity.Clone).Rule == identity.Renew {
		firmware.Set(spec, firmware.New())
	}
	switch to := spec.Domain.Firmware; {
	case c.Spec.NewSMBiosSerial != nil:
		to.Serial = *c.Spec.NewSMBiosSerial
	case to.Serial != "" && identity.Of(identity.Serial, identity.Clone).Rule == identity.Renew:
		to.Serial = string(c.UID)
	}
	return spec.Domain.Firmware
}

// interfaces returns the source's interfaces with the clone's MAC addresses, or without any.
func interfaces(c *clonev1.VirtualMachineClone, source []v1.Interface) ([]v1.Interface, error) {
	var out []v1.Interface
	left := maps.Clone(c.Spec.NewMacAddresses)
	for i := range source {
		nic := *source[i].DeepCopy()
		if identity.Of(identity.TemplateMAC, identity.Clone).Rule == identity.Renew {
			nic.MacAddress = ""
		}
		if to, ok := left[nic.Name]; ok {
			nic.MacAddress = to
			delete(left, nic.Name)
		}
		out = append(out, nic)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(left)) {
		faults = append(faults, fmt.Errorf("spec.newMacAddresses[%.63q]: %.40q: the VM has no interface of that name", name, left[name]))
	}
	return out, errors.Join(faults...)
}
