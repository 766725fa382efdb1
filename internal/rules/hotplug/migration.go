package hotplug

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/switchover"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// How the volumes of a guest follow it to another node. Each step waits for the one before it.
//
//	virt-controller       hands the VMI over to a migration while its volumes are AtRest: from then
//	                      on nothing is plugged or unplugged (Moving)
//	virt-controller       records attachment pods for them at the target (Record.Incoming), on the
//	                      claims that their disks are copied to (Destination), makes these pods, and
//	                      notes their UIDs when they run and their claims are filled
//	virt-handler, target  starts QEMU when each volume has one that runs (Arrivals), and plugs the
//	                      disks that the source tells of, where they are in the source
//	both virt-handlers    hand the guest over (package switchover)
//	virt-controller       makes the VMI's node the target's, and has its status name the new claims,
//	                      in one write (Arrive)
//	virt-handler, target  names the pods at the target: a handover as any other (Successor)
//	virt-controller       takes them into Record.Pods, drops those at the source, and deletes these
//	                      when the source's launcher pod has ended
//
// A migration that fails leaves Record.Pods as they were; those at the target are dropped, and are
// deleted when the target's launcher pod has ended (decision 324).

// Incoming are the attachment pods that hold a guest's volumes where a migration brings it.
type Incoming struct {
	// Migration is the UID of the VirtualMachineInstanceMigration.
	Migration types.UID       `json:"migration"`
	Pods      []AttachmentPod `json:"holders,omitempty"`
}

// Move is the last migration of a VMI as far as its volumes care. The zero value is none.
type Move struct {
	Migration types.UID
	// UnderWay means that the guest may be in either of two nodes.
	UnderWay bool
	// Arrived means that the guest is where the migration was to bring it, and the VMI says so.
	Arrived bool
}

// MoveOf is what a VMI says of its last migration.
func MoveOf(vmi *v1.VirtualMachineInstance) Move {
	m := vmi.Status.MigrationState
	if m == nil {
		return Move{}
	}
	arrived := switchover.Completed(m) && vmi.Status.NodeName == m.TargetNode
	return Move{Migration: m.MigrationUID, Arrived: arrived, UnderWay: !m.Failed && !arrived}
}

// after is the record as it is once a move is over: what is held where the guest has come to is
// held for the guest, and what is held where it has not come is dropped.
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

// RecordOf is the record of a VMI's attachment pods as it is for whoever uses them: those that have
// come with a migration are among the others, whether or not virt-controller has said so.
func RecordOf(vmi *v1.VirtualMachineInstance) (Record, error) {
	record, err := ReadRecord(vmi.Annotations)
	return record.after(MoveOf(vmi)), err
}

// EntriesOf is what a VMI's status says of its hotplugged volumes.
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

// VolumesOf are a spec's hotpluggable volumes.
func VolumesOf(spec *v1.VirtualMachineInstanceSpec) []Volume {
	var out []Volume
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; machine.Hotpluggable(v) {
			out = append(out, Volume{Name: v.Name, Claim: volumeclaim.Disk(&v.VolumeSource)})
		}
	}
	return out
}

// AtRest returns why a migration of the VMI can't begin now because of its hotplugged volumes, nil if
// it can: what the guest has is Ready and wanted, and nothing else is about to come to it or to leave
// it. A volume that waits for its claim or its attachment pod goes on waiting afterwards.
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

// some names the first few.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Arrivals are the attachment pods, of those that are seen on a migration's target, from which the
// guest's volumes are taken there, and the volumes that have none that runs yet.
func Arrivals(vmi *v1.VirtualMachineInstance, pods []Pod) (record Record, missing []string) {
	record.Pods = comingTo(vmi)
	for _, e := range arriving(vmi) {
		if InUse(e.Phase) && Successor(record, e.Volume, pods) == nil {
			missing = append(missing, e.Name)
		}
	}
	return record, missing
}

// Unattached names the guest's volumes of which no attachment pod at the target of the VMI's migration
// has been seen to run; empty when there are none.
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

// Expected is the name of the first attachment pod at the target of the VMI's migration that has not been
// seen to run; empty when there is none, or none is recorded yet.
func Expected(vmi *v1.VirtualMachineInstance) string {
	for _, h := range comingTo(vmi) {
		if h.UID == "" {
			return h.Name
		}
	}
	return ""
}

// comingTo are the attachment pods that are recorded at the target of the VMI's migration.
func comingTo(vmi *v1.VirtualMachineInstance) []AttachmentPod {
	record, err := ReadRecord(vmi.Annotations)
	if err != nil || record.Incoming == nil || record.Incoming.Migration != MoveOf(vmi).Migration {
		return nil
	}
	return record.Incoming.Pods
}

// planMove is the plan while the guest moves: its volumes are held at the target, too, and nothing
// else changes.
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
			// One that is gone is replaced. Of a cache, that it is not shown is no answer.
			return Plan{Entries: p.entries, Record: p.record, Needs: NeedPods}
		}
	}
	return out
}

// followMove records an attachment pod at the target for each of the guest's volumes that has none
// there, or has one that will not hold it any more.
func (p *planning) followMove() {
	in := Incoming{Migration: p.Move.Migration}
	if was := p.record.Incoming; was != nil && was.Migration == in.Migration {
		in.Pods = slices.Clone(was.Pods)
	}
	in.Pods = slices.DeleteFunc(in.Pods, func(h AttachmentPod) bool { return p.dead(&h) })
	var missing []Volume
	for i := range p.entries {
		e := &p.entries[i]
		v := p.there(e.Volume)
		if InUse(e.Phase) && !slices.ContainsFunc(in.Pods, func(h AttachmentPod) bool { return contains(h.Volumes, v) }) {
			missing = append(missing, v)
		}
	}
	if len(missing) > 0 {
		in.Pods = append(in.Pods, p.named(missing))
	}
	p.noteUIDsOf(in.Pods)
	if p.record.Incoming = &in; len(in.Pods) == 0 {
		p.record.Incoming = nil
	}
}
