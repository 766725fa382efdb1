package hotplug

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// How volumes follow a guest to another node. Each step waits for the one before it.
//
//	virt-controller       starts the migration while the volumes are AtRest; then nothing is plugged
//	                      or unplugged (Moving)
//	virt-controller       records attachment pods at the target (Record.Incoming), on the claims of
//	                      copied disks (Destination), creates them, and adds their UIDs when they
//	                      run and their claims are filled
//	virt-handler, target  starts QEMU when each volume has a running pod (Arrivals), and plugs the
//	                      disks that the source lists, at the same places
//	both virt-handlers    switch the guest over (package switchover)
//	virt-controller       makes the target the VMI's node and sets the new claims in its status, in
//	                      one write (Arrive)
//	virt-handler, target  names the pods at the target in the status: an ordinary handover (Successor)
//	virt-controller       moves them to Record.Pods, drops those at the source, and deletes these
//	                      when the source's launcher pod has ended
//
// After a failed migration, the pods at the target are dropped, and deleted when the target's launcher
// pod has ended (decision 324).

// Incoming are the attachment pods at the target of a migration.
type Incoming struct {
	Migration types.UID       `json:"migration"`
	Pods      []AttachmentPod `json:"holders,omitempty"`
}

// Move is a VMI's last migration. The zero value is none.
type Move struct {
	Migration types.UID
	UnderWay  bool // the guest may be on either node
	Arrived   bool // the target is the VMI's node
}

// MoveOf returns the VMI's last migration.
func MoveOf(vmi *v1.VirtualMachineInstance) Move {
	m := vmi.Status.MigrationState
	if m == nil {
		return Move{}
	}
	return Move{Migration: m.MigrationUID, Arrived: switchover.Arrived(&vmi.Status), UnderWay: switchover.InFlight(&vmi.Status)}
}

// after keeps the pods at the target only if the guest has arrived.
func (r Record) after(m Move) Record {
	in := r.Incoming
	if in == nil || m.UnderWay && in.Migration == m.Migration {
		return r
	}
	r.Incoming = nil
	if m.Arrived && in.Migration == m.Migration {
		r.Pods = slices.Concat(r.Pods, in.Pods)
	}
	return r
}

// RecordOf returns the VMI's record after its last move, written or not.
func RecordOf(vmi *v1.VirtualMachineInstance) (Record, error) {
	record, err := ReadRecord(vmi.Annotations)
	return record.after(MoveOf(vmi)), err
}

// EntriesOf returns the hotplugged volumes in a VMI's status.
func EntriesOf(vmi *v1.VirtualMachineInstance) []Entry {
	var out []Entry
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.HotplugVolume == nil {
			continue
		}
		e := Entry{
			Phase: s.Phase, Reason: s.Reason, Message: s.Message,
			PodName: s.HotplugVolume.AttachPodName, PodUID: s.HotplugVolume.AttachPodUID,
		}
		e.Name = s.Name
		if s.PersistentVolumeClaimInfo != nil {
			e.Claim = s.PersistentVolumeClaimInfo.ClaimName
		}
		out = append(out, e)
	}
	return out
}

// VolumesOf returns a spec's hotpluggable volumes, and its utility volumes.
func VolumesOf(spec *v1.VirtualMachineInstanceSpec) []Volume {
	var out []Volume
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; machine.Hotpluggable(v) {
			out = append(out, Volume{Name: v.Name, Claim: volumeclaim.Disk(&v.VolumeSource)})
		}
	}
	for i := range spec.UtilityVolumes {
		out = append(out, Volume{Name: spec.UtilityVolumes[i].Name, Claim: spec.UtilityVolumes[i].ClaimName})
	}
	return out
}

// AtRest returns why a migration can't begin now: a volume is being plugged or unplugged. Volumes may wait for their
// claim or pod.
func AtRest(vmi *v1.VirtualMachineInstance) error {
	record, err := ReadRecord(vmi.Annotations)
	switch {
	case err != nil:
		return fmt.Errorf("the attachment pods of its hotplugged volumes are recorded anew: %w", err)
	case record.Incoming != nil:
		return errors.New("the attachment pods of its last migration are not in order yet")
	}
	wanted := VolumesOf(&vmi.Spec)
	var busy []string
	for _, e := range EntriesOf(vmi) {
		in := InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode
		if in && (e.Phase != v1.VolumeReady || !contains(wanted, e.Volume)) {
			busy = append(busy, e.Name)
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("its hotplugged volumes (%s) are being plugged or unplugged", some(busy))
	}
	return nil
}

func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Arrivals returns the attachment pods at the target, and the volumes for which none runs.
func Arrivals(vmi *v1.VirtualMachineInstance, pods []Pod) (record Record, missing []string) {
	record.Pods = comingTo(vmi)
	for _, e := range arriving(vmi) {
		if InUse(e.Phase) && Successor(record, e.Volume, pods) == nil {
			missing = append(missing, e.Name)
		}
	}
	return record, missing
}

// Unattached names the volumes in use for which no pod at the target was seen running.
func Unattached(vmi *v1.VirtualMachineInstance) string {
	coming := comingTo(vmi)
	var names []string
	for _, e := range arriving(vmi) {
		held := slices.ContainsFunc(coming, func(h AttachmentPod) bool { return h.UID != "" && contains(h.Volumes, e.Volume) })
		if InUse(e.Phase) && !held {
			names = append(names, e.Name)
		}
	}
	return some(names)
}

// Expected returns the first attachment pod at the target that was not seen running, "" for none.
func Expected(vmi *v1.VirtualMachineInstance) string {
	for _, h := range comingTo(vmi) {
		if h.UID == "" {
			return h.Name
		}
	}
	return ""
}

func comingTo(vmi *v1.VirtualMachineInstance) []AttachmentPod {
	record, err := ReadRecord(vmi.Annotations)
	if err != nil || record.Incoming == nil || record.Incoming.Migration != MoveOf(vmi).Migration {
		return nil
	}
	return record.Incoming.Pods
}

func (p *planning) planMove() Plan {
	p.followMove()
	if p.unasked {
		return Plan{Needs: NeedMaintainers, Entries: p.Entries, Record: p.Record}
	}
	if !sameRecord(p.record, p.Record) {
		return Plan{Changed: true, Entries: p.entries, Record: p.record}
	}
	out := Plan{Entries: p.entries, Record: p.record}
	if p.record.Incoming == nil {
		return out
	}
	for _, h := range p.record.Incoming.Pods {
		switch {
		case p.pod(h.Name) != nil:
		case h.UID == "":
			out.Create = append(out.Create, h)
		case !p.Live:
			// A stale cache may lack the pod.
			return Plan{Entries: p.entries, Record: p.record, Needs: NeedPods}
		}
	}
	return out
}

func (p *planning) followMove() {
	in := Incoming{Migration: p.Move.Migration}
	if was := p.record.Incoming; was != nil && was.Migration == in.Migration {
		in.Pods = slices.Clone(was.Pods)
	}
	in.Pods = slices.DeleteFunc(in.Pods, func(h AttachmentPod) bool { return p.dead(&h) })
	var missing []Volume
	for i := range p.entries {
		e := &p.entries[i]
		v := e.Volume
		if i := slices.IndexFunc(p.Destinations, func(d Destination) bool { return d.From == e.Volume }); i >= 0 {
			v = p.Destinations[i].To
		}
		if InUse(e.Phase) && !slices.ContainsFunc(in.Pods, func(h AttachmentPod) bool { return contains(h.Volumes, v) }) {
			missing = append(missing, v)
		}
	}
	if len(missing) > 0 {
		in.Pods = append(in.Pods, p.named(missing))
	}
	p.recordUIDs(in.Pods)
	if p.record.Incoming = &in; len(in.Pods) == 0 {
		p.record.Incoming = nil
	}
}
