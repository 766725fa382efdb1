package hotplugspec

import (
	"encoding/json"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// EphemeralAnnotation lists on a VMI the volumes that were put into it and not into its VM's template, as KubeVirt
// does (decision 118).
const EphemeralAnnotation = "kubevirt.io/ephemeral-hotplug-volumes"

// RemovedAnnotation lists on a VMI the volumes of its VM's template that were
// taken out of the VMI alone (decision 118).
const RemovedAnnotation = "drydock.dev/removed-volumes"

// Drift is where a VMI differs from its VM's template on purpose: volumes that
// were put in (KubeVirt's annotation) or taken out without --persist. It ends
// with the VMI.
type Drift struct {
	in, out []string
}

// ReadDrift reads it from a VMI's annotations. What does not parse is nothing: the
// template counts.
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

// Added reports whether a volume was put into the VMI alone.
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

// settle forgets what is no difference any more: a volume that was put in and
// is in the template now or gone, one that was taken out and is not in the
// template any more.
func (o *Drift) settle(spec, template *v1.VirtualMachineInstanceSpec) {
	o.in = slices.DeleteFunc(slices.Clone(o.in), func(name string) bool {
		t := Find(template, name)
		return Find(spec, name) == nil || t != nil && machine.Hotpluggable(t)
	})
	o.out = slices.DeleteFunc(slices.Clone(o.out), func(name string) bool { return Find(template, name) == nil })
}

func (o *Drift) write(vmi *v1.VirtualMachineInstance) {
	writeNames(vmi, EphemeralAnnotation, o.in)
	writeNames(vmi, RemovedAnnotation, o.out)
}

// writeNames writes a list into an annotation, which an empty list does not need.
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

// NoteAdded notes that a volume was put into the VMI alone.
func NoteAdded(vmi *v1.VirtualMachineInstance, name string) {
	forgetForced(vmi, name)
	drift := ReadDrift(vmi.Annotations)
	drift.out = slices.DeleteFunc(drift.out, func(n string) bool { return n == name })
	if !drift.Added(name) {
		drift.in = append(drift.in, name)
	}
	drift.write(vmi)
}

// NoteRemoved notes that a volume was taken out of the VMI alone.
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
