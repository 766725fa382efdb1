package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/snapshot"
	"drydock.dev/drydock/internal/rules/snapshot/vmpatch"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

func (d *decision) manifest(volumes []snapshotv1.VolumeRestore) (*v1.VirtualMachine, error) {
	var vm *v1.VirtualMachine
	var err error
	if d.verb == identity.RestoreInPlace {
		vm = d.inPlace()
	} else if vm, err = d.anew(); err != nil {
		return nil, err
	}
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("the VM of the snapshot has no template")
	}
	// The guest of an old content without a UUID had this one.
	firmware.Persist(&vm.Spec.Template.Spec, vm.Name)
	if err := d.useClaims(vm, volumes); err != nil {
		return nil, err
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	vm.Annotations[LastRestore] = mark(d.o.Restore)
	if d.verb != identity.RestoreInPlace && d.keepsState(vm) {
		vm.Annotations[stateclaim.AwaitedAnnotation] = mark(d.o.Restore)
	}
	return vm, nil
}

// The target keeps its run strategy.
func (d *decision) inPlace() *v1.VirtualMachine {
	vm, was := d.o.VM.DeepCopy(), d.o.Content.Spec.Source.VirtualMachine
	running, strategy := vm.Spec.Running, vm.Spec.RunStrategy
	vm.Spec = *was.Spec.DeepCopy()
	vm.Spec.Running, vm.Spec.RunStrategy = running, strategy
	keepShape(vm, was)
	if writers := was.Annotations[layout.AnnCloneWriters]; writers != "" {
		// The restored templates keep their writers' rights.
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, layout.AnnCloneWriters, writers)
	}
	return vm
}

func halted(vm *v1.VirtualMachine) *v1.VirtualMachine {
	out := vm.DeepCopy()
	out.Spec.Running, out.Spec.RunStrategy = nil, new(v1.RunStrategyHalted)
	return out
}

// anew returns a halted VM from the snapshot's manifest and the restore's patches. One with a deleted VM's name
// continues as that VM; any other gets an identity of its own.
func (d *decision) anew() (*v1.VirtualMachine, error) {
	was := d.o.Content.Spec.Source.VirtualMachine
	original := halted(&v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels, Annotations: was.Annotations},
		Spec:       *was.Spec.DeepCopy(),
	})
	lock.Drop(original) // The snapshot's VM may have been locked when it was taken.
	keepShape(original, was)
	patches, err := vmpatch.Parse(d.o.Restore.Spec.Patches)
	if err != nil {
		return nil, err
	}
	patched, err := vmpatch.Apply(original, patches)
	if err != nil {
		return nil, err
	}
	instancetype.Complete(patched, original)
	target := d.o.Restore.Spec.Target.Name
	if patched.Name != was.Name && patched.Name != target {
		return nil, fmt.Errorf("the patches name the VM %q, the restore's target is %q", patched.Name, target)
	}
	if target != was.Name && original.Spec.Template != nil && patched.Spec.Template != nil {
		if err := renew(patched, original, patches); err != nil {
			return nil, err
		}
	}
	annotations := maps.Clone(patched.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		// Only Drydock writes these.
		domain, _, _ := strings.Cut(key, "/")
		return domain == "drydock.dev" || domain == "restore.kubevirt.io"
	})
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.o.Restore.Namespace, Name: target, Labels: patched.Labels, Annotations: annotations},
		Spec:       patched.Spec,
	}, nil
}

func keepShape(vm *v1.VirtualMachine, was *snapshotv1.VirtualMachine) {
	toType, toPreference := instancetype.References(vm)
	if name := instancetype.RevisionOf(was.Status.InstancetypeRef); toType != nil && name != "" && toType.Revision() != name {
		vm.Spec.Instancetype.RevisionName = name
	}
	if name := instancetype.RevisionOf(was.Status.PreferenceRef); toPreference != nil && name != "" && toPreference.Revision() != name {
		vm.Spec.Preference.RevisionName = name
	}
}

// Stand-ins show whether a patch has set a renewed field.
const (
	standInUUID = "00000000-0000-4000-8000-000000000000"
	standInMAC  = "stand-in"
)

// renew replaces parts of the identity by the table of identities, unless a patch sets a value, even the original's.
func renew(patched, original *v1.VirtualMachine, patches []vmpatch.Operation) error {
	marked := original.DeepCopy()
	spec := &marked.Spec.Template.Spec
	if !firmware.Missing(spec) {
		firmware.Set(spec, types.UID(standInUUID))
	}
	for i := range spec.Domain.Devices.Interfaces {
		if nic := &spec.Domain.Devices.Interfaces[i]; nic.MacAddress != "" {
			nic.MacAddress = standInMAC
		}
	}
	isTest := func(o vmpatch.Operation) bool { return o.Op == "test" }
	if marked, err := vmpatch.Apply(marked, slices.DeleteFunc(slices.Clone(patches), isTest)); err != nil {
		return err
	} else if marked.Spec.Template != nil {
		spec = &marked.Spec.Template.Spec
	}
	to := &patched.Spec.Template.Spec
	if identity.Of(identity.FirmwareUUID, identity.RestoreToNew).Rule == identity.Renew &&
		spec.Domain.Firmware != nil && spec.Domain.Firmware.UUID == standInUUID {
		firmware.Set(to, firmware.New())
	}
	if identity.Of(identity.TemplateMAC, identity.RestoreToNew).Rule != identity.Renew {
		return nil
	}
	nics, marks := to.Domain.Devices.Interfaces, spec.Domain.Devices.Interfaces
	for i := range min(len(nics), len(marks)) {
		if marks[i].MacAddress == standInMAC {
			nics[i].MacAddress = ""
		}
	}
	return nil
}

// useClaims makes the VM's volumes use the restored claims. With unchanged names the volumes stay as they are, so that
// applying the manifest again changes nothing.
func (d *decision) useClaims(vm *v1.VirtualMachine, volumes []snapshotv1.VolumeRestore) error {
	inPlace := d.verb == identity.RestoreInPlace
	keepsNames := inPlace && policy(d.o.Restore) == snapshotv1.VolumeRestorePolicyInPlace && len(d.o.Restore.Spec.VolumeRestoreOverrides) == 0
	restored := map[string]string{}
	for _, v := range volumes {
		restored[v.VolumeName] = v.PersistentVolumeClaimName
	}
	spec := &vm.Spec.Template.Spec
	for _, onClaim := range snapshot.OnClaims(spec.Volumes) {
		name, claim := onClaim[0], onClaim[1]
		volume := volumeclaim.Named(spec.Volumes, name)
		switch to := restored[name]; {
		case to != "" && keepsNames:
		case to != "":
			before, _ := volumeclaim.Of(&volume.VolumeSource)
			source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: machine.Hotpluggable(volume)}
			source.ClaimName, source.ReadOnly = to, before.ReadOnly
			volume.VolumeSource = v1.VolumeSource{PersistentVolumeClaim: source}
		case !inPlace || d.o.VM.Spec.Template == nil || !slices.Contains(snapshot.OnClaims(d.o.VM.Spec.Template.Spec.Volumes), onClaim):
			return fmt.Errorf("the volume %s is on the claim %s, which the snapshot has no copy of; take the volume and its disk out of the VM with patches, or restore the VM in place with that claim", name, claim)
		}
	}
	if !keepsNames {
		vm.Spec.DataVolumeTemplates = nil
	}
	return nil
}
