package maintenancepod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

type disk struct {
	volume, path, claim string
	readOnly            bool
}

// Claims returns the claims of a request's pod.
func Claims(vm *v1.VirtualMachine, r *maintenance.Request) ([]string, error) {
	if vm.Spec.Template == nil {
		return nil, errors.New("the VM has no template, and so no disks")
	}
	disks, err := disksOf(vm, r)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(disks))
	for _, d := range disks {
		names = append(names, d.claim)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// disksOf returns the disks of a request, in the order of the VM's volumes.
func disksOf(vm *v1.VirtualMachine, r *maintenance.Request) ([]disk, error) {
	spec := &vm.Spec.Template.Spec
	if err := checkDisks(spec, r.Disks); err != nil {
		return nil, err
	}
	var disks []disk
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		claim, on := volumeclaim.Of(&v.VolumeSource)
		switch {
		case !on, len(r.Disks) > 0 && !slices.Contains(r.Disks, v.Name):
			continue
		case len(r.Disks) == 0 && claim.Backing:
			continue // Many guests may share a backing image, so it must be named.
		case len(r.Disks) == 0 && machine.IsShare(spec, v.Name):
			continue // Other pods may use a shared folder, so it must be named.
		}
		disks = append(disks, disk{
			volume: layout.PodVolume(v.Name), path: layout.MaintenanceDisk(v.Name), claim: claim.Name,
			readOnly: r.ReadOnly || claim.ReadOnly || readOnly(spec, v.Name),
		})
	}
	if r.BackendStorage {
		claim := stateclaim.ClaimOf(vm)
		if claim == "" {
			return nil, errors.New("the VM keeps neither UEFI variables nor a TPM: there is no backend storage to be had")
		}
		disks = append(disks, disk{volume: layout.StateVolume, path: layout.BackendStorageDir, claim: claim, readOnly: r.ReadOnly})
	}
	if len(disks) == 0 {
		return nil, errors.New("none of the VM's disks is on a PersistentVolumeClaim or a DataVolume: there is nothing that would outlast the pod")
	}
	return disks, nil
}

func checkDisks(spec *v1.VirtualMachineInstanceSpec, names []string) error {
	for _, name := range names {
		volume := volumeclaim.Named(spec.Volumes, name)
		if volume == nil {
			return fmt.Errorf("the VM has no volume %q; %s", name, choice(spec))
		}
		if _, on := volumeclaim.Of(&volume.VolumeSource); on {
			continue
		}
		if volume.ContainerDisk != nil {
			return fmt.Errorf("volume %q is a containerDisk: an image, which each guest begins with anew; %s", name, choice(spec))
		}
		return fmt.Errorf("volume %q is on no PersistentVolumeClaim and no DataVolume; %s", name, choice(spec))
	}
	return nil
}

func choice(spec *v1.VirtualMachineInstanceSpec) string {
	var names []string
	for i := range spec.Volumes {
		if _, on := volumeclaim.Of(&spec.Volumes[i].VolumeSource); on {
			names = append(names, spec.Volumes[i].Name)
		}
	}
	if len(names) == 0 {
		return "none of its volumes is on a claim"
	}
	return "on claims are: " + strings.Join(names, ", ")
}

func readOnly(spec *v1.VirtualMachineInstanceSpec, volume string) bool {
	return slices.ContainsFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
		return d.Name == volume && launcherpod.ReadOnly(&d)
	})
}

// ErrToCome means that virt-controller has yet to create the claim.
var ErrToCome = errors.New("does not exist yet: a DataVolume of the VM makes it")

func checkClaims(vm *v1.VirtualMachine, disks []disk, claims map[string]*corev1.PersistentVolumeClaim) error {
	for _, d := range disks {
		templated := slices.ContainsFunc(vm.Spec.DataVolumeTemplates, func(t v1.DataVolumeTemplateSpec) bool { return t.Name == d.claim })
		switch claim := claims[d.claim]; {
		case claim == nil && templated:
			return fmt.Errorf("PVC %s, which the VM's disk is to be on, %w", d.claim, ErrToCome)
		case claim == nil:
			return fmt.Errorf("PVC %s, which the VM's disk is to be on, does not exist", d.claim)
		case claim.DeletionTimestamp != nil:
			return fmt.Errorf("PVC %s, which the VM's disk is on, is being deleted", d.claim)
		case claim.Status.Phase == corev1.ClaimLost:
			return fmt.Errorf("PVC %s, which the VM's disk is on, has lost its persistent volume", d.claim)
		}
	}
	return nil
}
