// Package volumemigration has the rules of storage migration: which changes of a VM's volumes are
// made by copying disks to other claims of a running guest, which claims count meanwhile, and which
// ones a VM may start with after an unfinished copy.
//
//	template names other claims ──> VM's record ──> VMI's migratedVolumes ──> migration ──> VMI's spec
//	         (Compare)            (Unfinished)          (Of, Target)          (WrongClaims)   (Arrive)
//
// Invariants (decision 340):
//   - spec.volumes of a VMI has the claims that its guest writes to.
//   - migratedVolumes does not change while a migration of the VMI is in flight.
//   - A VM whose template names an incomplete copy has a record of it, and is not started.
//
// It must not import a client. Package switchover decides how disks are copied.
package volumemigration

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Move is a volume whose disk is to be copied from one claim to another.
type Move struct{ Volume, From, To string }

func (m Move) String() string { return fmt.Sprintf("%s from %s to %s", m.Volume, m.From, m.To) }

// Text formats moves for a sentence.
func Text(moves []Move) string {
	list := make([]string, 0, len(moves))
	for _, m := range moves {
		list = append(list, m.String())
	}
	return strings.Join(list, ", ")
}

// ByMigration reports whether the VM's volumes are changed by migration.
func ByMigration(vm *v1.VirtualMachineSpec) bool {
	return vm.UpdateVolumesStrategy != nil && *vm.UpdateVolumesStrategy == v1.UpdateVolumesStrategyMigration
}

// Read returns the moves in a status. It skips entries without both claims.
func Read(list []v1.StorageMigratedVolumeInfo) []Move {
	var moves []Move
	for i := range list {
		if from, to := list[i].SourcePVCInfo, list[i].DestinationPVCInfo; from != nil && to != nil {
			moves = append(moves, Move{Volume: list[i].VolumeName, From: from.ClaimName, To: to.ClaimName})
		}
	}
	return moves
}

// Write returns the moves for a status.
func Write(moves []Move) []v1.StorageMigratedVolumeInfo {
	var list []v1.StorageMigratedVolumeInfo
	for _, m := range moves {
		list = append(list, v1.StorageMigratedVolumeInfo{
			VolumeName:         m.Volume,
			SourcePVCInfo:      &v1.PersistentVolumeClaimInfo{ClaimName: m.From},
			DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: m.To},
		})
	}
	return list
}

// Describe completes entries of Write: the source from the VMI's status, the destination from its claim.
func Describe(list []v1.StorageMigratedVolumeInfo, vmi *v1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) {
	for i := range list {
		entry := &list[i]
		if info := claimInfo(vmi, entry.VolumeName); info != nil && info.ClaimName == entry.SourcePVCInfo.ClaimName {
			entry.SourcePVCInfo = info.DeepCopy()
		}
		if claim := claims[entry.DestinationPVCInfo.ClaimName]; claim != nil {
			entry.DestinationPVCInfo = volumeclaim.Info(claim.Name, claim)
		}
	}
}

// Missing returns the first claim that does not exist, "" if all do.
func Missing(moves []Move, claims map[string]*corev1.PersistentVolumeClaim) string {
	for _, m := range moves {
		if claims[m.To] == nil {
			return m.To
		}
	}
	return ""
}

// Of returns the VMI's current moves. It skips entries that are not about a claim of its spec.
func Of(vmi *v1.VirtualMachineInstance) []Move {
	return slices.DeleteFunc(Read(vmi.Status.MigratedVolumes), func(m Move) bool {
		return m.From == "" || m.To == "" || claimOf(&vmi.Spec, m.Volume) != m.From
	})
}

// Target returns the VMI for the target of its migration: with the new claims in its spec and in the status of plugged
// volumes, whose other information the caller must look up. Without moves it returns vmi.
func Target(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	moves := Of(vmi)
	if len(moves) == 0 {
		return vmi
	}
	out := *vmi
	out.Spec = Arrive(&vmi.Spec, moves)
	out.Status.VolumeStatus = slices.Clone(vmi.Status.VolumeStatus)
	for _, m := range moves {
		for i := range out.Status.VolumeStatus {
			s := &out.Status.VolumeStatus[i]
			if s.Name == m.Volume && s.HotplugVolume != nil && s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName == m.From {
				s.PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: m.To}
			}
		}
	}
	return &out
}

// Arrive returns the spec of a VMI whose migration has succeeded. It shares everything but the volumes with spec.
func Arrive(spec *v1.VirtualMachineInstanceSpec, moves []Move) v1.VirtualMachineInstanceSpec {
	out := *spec
	out.Volumes = slices.Clone(spec.Volumes)
	for _, m := range moves {
		for i := range out.Volumes {
			if v := &out.Volumes[i]; v.Name == m.Volume && claimOf(spec, m.Volume) == m.From {
				v.VolumeSource = onClaim(&v.VolumeSource, m.To)
			}
		}
	}
	return out
}

func onClaim(source *v1.VolumeSource, claim string) v1.VolumeSource {
	if source.DataVolume != nil {
		return v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim, Hotpluggable: source.DataVolume.Hotpluggable}}
	}
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		Hotpluggable:                      source.PersistentVolumeClaim.Hotpluggable,
	}}
}

// WrongClaims returns why a target pod's claims are not those that the VMI needs, "" if they are.
func WrongClaims(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) string {
	wanted := Target(vmi)
	for i := range wanted.Spec.Volumes {
		v := &wanted.Spec.Volumes[i]
		claim := volumeclaim.Name(&v.VolumeSource)
		if claim == "" || machine.Hotpluggable(v) {
			continue
		}
		if has := mounted(pod, layout.PodVolume(v.Name)); has != claim {
			return fmt.Sprintf("the target pod %s has volume %s on the claim %q, and the VMI wants it on %q by now", pod.Name, v.Name, has, claim)
		}
	}
	return ""
}

func mounted(pod *corev1.Pod, volume string) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

func claimOf(spec *v1.VirtualMachineInstanceSpec, volume string) string {
	if v := volumeclaim.Named(spec.Volumes, volume); v != nil {
		return volumeclaim.Disk(&v.VolumeSource)
	}
	return ""
}
