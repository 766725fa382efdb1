package vmihandler

import (
	"cmp"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// volumes returns the status of the volumes that the guest started with, and of the hotplugged ones that
// virt-controller has listed, whose fields it keeps.
func volumes(vmi *v1.VirtualMachineInstance, have []v1.VolumeStatus, g *Guest) []v1.VolumeStatus {
	var list []v1.VolumeStatus
	names := targets(vmi, have)
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if machine.Hotpluggable(v) {
			continue
		}
		status := v1.VolumeStatus{Name: v.Name}
		if at := slices.IndexFunc(have, func(s v1.VolumeStatus) bool { return s.Name == v.Name }); at >= 0 {
			status = have[at]
		}
		status.Target = names[v.Name]
		if known, ok := g.Volumes[v.Name]; ok {
			// virt-controller's information about the claim is newer.
			if told := status.PersistentVolumeClaimInfo; told == nil || known.Claim == nil || told.ClaimName != known.Claim.ClaimName {
				status.PersistentVolumeClaimInfo = known.Claim
			}
			status.Size = sizeSeenByGuest(status.Size, known)
		}
		list = append(list, status)
	}
	for _, status := range have {
		if status.HotplugVolume != nil {
			list = append(list, plugged(status, g.Plugged[status.Name], names))
		}
	}
	slices.SortFunc(list, func(a, b v1.VolumeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// A guest that was moved to a larger claim knows the old size until the disk is resized.
func sizeSeenByGuest(before int64, known Volume) int64 {
	switch {
	case known.Grown > 0:
		return known.Grown
	case before > 0 && known.Size > 0:
		return min(before, known.Size)
	}
	return max(before, known.Size)
}

func plugged(status v1.VolumeStatus, p Plugged, names map[string]string) v1.VolumeStatus {
	if p.Phase == "" {
		return status
	}
	status.Phase, status.Reason, status.Message = p.Phase, p.Reason, p.Message
	status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: p.PodName, AttachPodUID: p.PodUID}
	status.Target = ""
	if p.Phase == v1.VolumeReady || p.Phase == v1.HotplugVolumeDetaching {
		status.Target = names[status.Name]
	}
	if p.Size > 0 {
		status.Size = p.Size
	}
	if p.Dump != nil {
		status.MemoryDumpVolume = p.Dump
	}
	return status
}

// targets gives disks the names that KubeVirt's users expect: vda … for virtio, sda … for others, in the spec's
// order. A hotplugged disk keeps its name.
func targets(vmi *v1.VirtualMachineInstance, have []v1.VolumeStatus) map[string]string {
	names, taken := map[string]string{}, map[string]bool{}
	for _, status := range have {
		if status.HotplugVolume != nil && status.Target != "" {
			names[status.Name], taken[status.Target] = status.Target, true
		}
	}
	coming := map[string]bool{}
	for i := range vmi.Spec.Volumes {
		if v := &vmi.Spec.Volumes[i]; machine.Hotpluggable(v) {
			coming[v.Name] = true
		}
	}
	disks := vmi.Spec.Domain.Devices.Disks
	for _, later := range []bool{false, true} {
		for i := range disks {
			name := disks[i].Name
			if coming[name] != later || names[name] != "" {
				continue
			}
			names[name] = free(prefix(&disks[i], later), taken)
			taken[names[name]] = true
		}
	}
	return names
}

func prefix(d *v1.Disk, plugged bool) string {
	on := bus(d)
	if plugged {
		on = machine.HotBus(d)
	}
	if on == v1.DiskBusVirtio {
		return "vd"
	}
	return "sd"
}

func free(prefix string, taken map[string]bool) string {
	for n := 0; ; n++ {
		if name := prefix + letters(n); !taken[name] {
			return name
		}
	}
}

func bus(d *v1.Disk) v1.DiskBus {
	switch {
	case d.Disk != nil:
		return cmp.Or(d.Disk.Bus, v1.DiskBusVirtio)
	case d.LUN != nil:
		return cmp.Or(d.LUN.Bus, v1.DiskBusSCSI)
	case d.CDRom != nil:
		return cmp.Or(d.CDRom.Bus, v1.DiskBusSATA)
	}
	return v1.DiskBusVirtio
}

// withHotplugClaims adds the claims of hotplugged volumes, which virt-controller keeps in their status.
func withHotplugClaims(list []v1.VolumeStatus, known map[string]Volume) map[string]Volume {
	all := map[string]Volume{}
	for i := range list {
		all[list[i].Name] = Volume{Size: list[i].Size, Claim: list[i].PersistentVolumeClaimInfo}
	}
	for name, v := range known {
		all[name] = v
	}
	return all
}

// letters counts a … z, aa …, as Linux names disks.
func letters(n int) string {
	var text []byte
	for n++; n > 0; n = (n - 1) / 26 {
		text = append(text, byte('a'+(n-1)%26))
	}
	slices.Reverse(text)
	return string(text)
}
