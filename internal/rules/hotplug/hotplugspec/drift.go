package hotplugspec

import (
	"encoding/json"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// EphemeralAnnotation lists the volumes that were added to a VMI but not to its VM's template, as in KubeVirt.
const EphemeralAnnotation = "kubevirt.io/ephemeral-hotplug-volumes"

// RemovedAnnotation lists the volumes of the VM's template that were removed from the VMI only.
const RemovedAnnotation = "drydock.dev/removed-volumes"

// Drift is the intended difference between a VMI and its VM's template: volumes that were added or removed without
// --persist.
type Drift struct {
	in, out []string
}

// ReadDrift reads the drift from a VMI's annotations. A malformed one is ignored: the template counts.
func ReadDrift(annotations map[string]string) Drift {
	return Drift{in: names(annotations[EphemeralAnnotation]), out: names(annotations[RemovedAnnotation])}
}

func names(text string) []string {
	var list []string
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return list
}

// Added reports whether only the VMI has the volume.
func (o *Drift) Added(name string) bool { return slices.Contains(o.in, name) }

func (o *Drift) removed(name string) bool { return slices.Contains(o.out, name) }

func (o *Drift) text() string { return encode(o.in) + encode(o.out) }

func encode(list []string) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("encoding a list of names: " + err.Error())
	}
	return string(text)
}

// settle drops added volumes that are now in the template or gone, and removed ones that have left the template.
func (o *Drift) settle(spec, template *v1.VirtualMachineInstanceSpec) {
	o.in = slices.DeleteFunc(slices.Clone(o.in), func(name string) bool {
		t := volumeclaim.Named(template.Volumes, name)
		return volumeclaim.Named(spec.Volumes, name) == nil || t != nil && machine.Hotpluggable(t)
	})
	o.out = slices.DeleteFunc(slices.Clone(o.out), func(name string) bool { return volumeclaim.Named(template.Volumes, name) == nil })
}

func (o *Drift) write(vmi *v1.VirtualMachineInstance) {
	writeNames(vmi, EphemeralAnnotation, o.in)
	writeNames(vmi, RemovedAnnotation, o.out)
}

func writeNames(vmi *v1.VirtualMachineInstance, annotation string, list []string) {
	text := encode(list)
	if text == "" {
		delete(vmi.Annotations, annotation)
		return
	}
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[annotation] = text
}

// NoteAdded records a volume that only the VMI gets.
func NoteAdded(vmi *v1.VirtualMachineInstance, name string) {
	forgetForced(vmi, name)
	drift := ReadDrift(vmi.Annotations)
	drift.out = slices.DeleteFunc(drift.out, func(n string) bool { return n == name })
	if !drift.Added(name) {
		drift.in = append(drift.in, name)
	}
	drift.write(vmi)
}

// NoteRemoved records a volume that only the VMI loses.
func NoteRemoved(vmi *v1.VirtualMachineInstance, name string) {
	forgetForced(vmi, name)
	drift := ReadDrift(vmi.Annotations)
	wasAdded := drift.Added(name)
	drift.in = slices.DeleteFunc(drift.in, func(n string) bool { return n == name })
	if !wasAdded && !drift.removed(name) {
		drift.out = append(drift.out, name)
	}
	drift.write(vmi)
}
