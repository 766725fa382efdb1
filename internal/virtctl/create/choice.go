package create

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

type choice struct {
	flag  string
	kinds []string
	name  string
	infer bool
	from  string
	// The user has requested inference, which is otherwise optional.
	asked bool
}

func (r *choice) inferFlag() string { return "infer-" + r.flag }
func (r *choice) fromFlag() string  { return "infer-" + r.flag + "-from" }

func (r *choice) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.name, r.flag, "", fmt.Sprintf("%s of the machine: [KIND/]NAME, of kind %s", r.flag, strings.Join(r.kinds, " or ")))
	flags.BoolVar(&r.infer, r.inferFlag(), true, fmt.Sprintf("take the %s from the labels of the disk that is booted", r.flag))
	flags.StringVar(&r.from, r.fromFlag(), "", fmt.Sprintf("take the %s from the labels of the volume of this name", r.flag))
}

type matcher struct {
	kind, name, from string
	// optional lets the machine go without if the volume has no labels.
	optional bool
}

// resolve returns the machine's reference, nil for none. given means that other flags have set the values that
// the reference would set.
func (r *choice) resolve(disks []disk, given bool) (*matcher, error) {
	switch {
	case r.name != "":
		kind, name, found := strings.Cut(r.name, "/")
		if !found {
			kind, name = "", r.name
		}
		kind = strings.ToLower(kind)
		if found && !slices.Contains(r.kinds, kind) {
			return nil, fmt.Errorf("--%s: the kind must be %s, not %q", r.flag, strings.Join(r.kinds, " or "), kind)
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("--%s must be [KIND/]NAME, not %q: %s", r.flag, r.name, problems[0])
		}
		return &matcher{kind: kind, name: name}, nil
	case !r.infer && r.from == "", given && !r.asked:
		return nil, nil
	}
	source, err := r.source(disks)
	if err != nil {
		if !r.asked {
			return nil, nil
		}
		return nil, err
	}
	return &matcher{from: source, optional: !r.asked}, nil
}

// The default is the boot disk.
func (r *choice) source(disks []disk) (string, error) {
	flag := r.inferFlag()
	if r.from != "" {
		flag = r.fromFlag()
	}
	var chosen *disk
	for i := range disks {
		d := &disks[i]
		if chosen == nil || d.bootOrder != nil && (chosen.bootOrder == nil || *d.bootOrder < *chosen.bootOrder) {
			chosen = d
		}
	}
	if r.from != "" {
		at := slices.IndexFunc(disks, func(d disk) bool { return d.volume.Name == r.from })
		if at < 0 {
			return "", fmt.Errorf("--%s: there is no volume %q", flag, r.from)
		}
		chosen = &disks[at]
	}
	if chosen == nil {
		return "", fmt.Errorf("--%s: the machine has no volume to infer from", flag)
	}
	if err := inferable(chosen); err != nil {
		return "", fmt.Errorf("--%s: nothing can be inferred from volume %q: %w", flag, chosen.volume.Name, err)
	}
	return chosen.volume.Name, nil
}

// inferable returns an error for a disk that has no labels, neither its own nor a source's.
func inferable(d *disk) error {
	if d.volume.PersistentVolumeClaim != nil {
		return nil
	}
	if d.template == nil {
		return errors.New("only claims and disks that are made with the machine have labels")
	}
	spec := &d.template.Spec
	if spec.SourceRef != nil || spec.Source != nil && (spec.Source.PVC != nil || spec.Source.Registry != nil || spec.Source.Snapshot != nil) {
		return nil
	}
	return errors.New("its source has no labels; a claim, a snapshot, an image in a registry and a DataSource have")
}

func (m *matcher) policy() *v1.InferFromVolumeFailurePolicy {
	if !m.optional {
		return nil
	}
	return new(v1.IgnoreInferFromVolumeFailure)
}

// applyReferences sets both references and removes fields that would conflict with or override them: memory and
// CPUs that the user has not set, and the bus of disks, which a preference chooses.
func (o *options) applyReferences(vm *v1.VirtualMachine, disks []disk) error {
	kind, err := o.instancetype.resolve(disks, o.memoryGiven || o.cpusGiven)
	if err != nil {
		return err
	}
	preference, err := o.preference.resolve(disks, false)
	if err != nil {
		return err
	}
	domain := &vm.Spec.Template.Spec.Domain
	if !o.cpusGiven && (kind != nil || preference != nil) {
		domain.CPU = nil
	}
	if kind != nil {
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{
			Kind: kind.kind, Name: kind.name, InferFromVolume: kind.from, InferFromVolumeFailurePolicy: kind.policy(),
		}
		// Without labels, the memory is the default.
		if !kind.optional {
			domain.Memory = nil
		}
	}
	if preference != nil {
		vm.Spec.Preference = &v1.PreferenceMatcher{
			Kind: preference.kind, Name: preference.name, InferFromVolume: preference.from, InferFromVolumeFailurePolicy: preference.policy(),
		}
		for i := range domain.Devices.Disks {
			if target := domain.Devices.Disks[i].Disk; target != nil {
				target.Bus = ""
			}
		}
	}
	return nil
}
