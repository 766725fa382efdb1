package hotplug_test

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/exploration"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// A guest goes to the other of two nodes. The real functions decide when its migration may begin (AtRest), and when
// the target's QEMU has its volumes (Arrivals). Package switchover models which QEMU runs the guest.

// journey is the VMI's state of migrations.
type journey struct {
	// node is the guest's, migration the number of the last migration.
	node, migration uint8
	// moving is set from the VMI's handover to the end of the migration; arrived means that it has brought the guest
	// here; other means that a launcher pod on the other node has not ended.
	moving, arrived, other bool
	// incoming is the record's list for the migration incomingOf.
	incomingOf uint8
	incoming   [2]attachmentPod
}

var migrationUIDs = func() (out [256]types.UID) {
	for i := range out {
		out[i] = types.UID(fmt.Sprintf("m%d", i))
	}
	return out
}()

// host returns the node for new attachment pods.
func (j *journey) host() uint8 {
	if j.moving {
		return 1 - j.node
	}
	return j.node
}

// observe adds virt-controller's view of migrations.
func (j *journey) observe(o *hotplug.Observed) {
	if j.migration > 0 {
		o.Move = hotplug.Move{Migration: migrationUIDs[j.migration], UnderWay: j.moving, Arrived: j.arrived}
	}
	if j.moving {
		o.Stage = hotplug.Moving
	}
	o.Record.Incoming = j.recorded()
}

// recorded returns the record's list of pods at the target.
func (j *journey) recorded() *hotplug.Incoming {
	if j.incomingOf == 0 {
		return nil
	}
	in := &hotplug.Incoming{Migration: migrationUIDs[j.incomingOf]}
	for _, h := range j.incoming {
		if h.name != 0 {
			in.Pods = append(in.Pods, hotplug.AttachmentPod{Name: podNames[h.name], Volumes: volumeLists[h.volumes]})
			if h.uid != 0 {
				in.Pods[len(in.Pods)-1].UID = uids[h.uid]
			}
		}
	}
	return in
}

// record stores the planned record.
func (j *journey) record(in *hotplug.Incoming) {
	j.incomingOf, j.incoming = 0, [2]attachmentPod{}
	if in == nil {
		return
	}
	for i := range migrationUIDs {
		if migrationUIDs[i] == in.Migration {
			j.incomingOf = uint8(i)
		}
	}
	for i, h := range in.Pods {
		j.incoming[i] = attachmentPod{name: nameOf(h.Name), uid: uidOf(h.UID), volumes: setOf(h.Volumes)}
	}
}

// uses reports whether a pod that was made for a migration may be used.
func (j *journey) uses(name, uid uint8) bool {
	for _, h := range j.incoming {
		if j.arrived && j.incomingOf == j.migration && h.name == name && h.uid == uid && name != 0 {
			return true
		}
	}
	return false
}

// vmi returns the object for AtRest and Arrivals.
func (sc *scenario) vmi(o *object) *v1.VirtualMachineInstance {
	seen := sc.observed(o, &pods{}, noPace, false)
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.NodeName = fmt.Sprint(o.node)
	if o.migration > 0 {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: migrationUIDs[o.migration], TargetNode: fmt.Sprint(1 - o.node)}
	}
	if text := seen.Record.Text(); text != "" {
		vmi.Annotations = map[string]string{hotplug.RecordAnnotation: text}
	}
	for _, w := range seen.Wanted {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: w.Name, VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: w.Claim, Hotpluggable: true},
		}})
	}
	var moves []volumemigration.Move
	for _, d := range seen.Destinations {
		moves = append(moves, volumemigration.Move{Volume: d.From.Name, From: d.From.Claim, To: d.To.Claim})
	}
	vmi.Status.MigratedVolumes = volumemigration.Write(moves)
	for _, e := range seen.Entries {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: e.Name, Phase: e.Phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: e.PodName, AttachPodUID: e.PodUID},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: e.Claim},
		})
	}
	return vmi
}

// migrates emits all possible next steps of the guest's place.
func (sc *scenario) migrates(s *state, emit emitter) {
	o := &s.vmi
	change := func(k kind, edit func(to *state)) {
		to := *s
		to.touchVMI()
		edit(&to)
		emit(step{kind: k}, to)
	}
	switch {
	case o.moving:
		if s.taken || sc.takes(s) {
			change(migrationArrives, func(to *state) {
				to.lingering = to.open()
				sc.arrive(to)
				to.vmi.node, to.vmi.moving, to.vmi.arrived, to.vmi.other = 1-o.node, false, true, true
				to.taken = false
			})
		}
		if !s.taken && sc.takes(s) {
			to := *s
			to.taken = true
			emit(step{kind: targetTakes}, to)
		}
		change(migrationFails, func(to *state) {
			if to.vmi.moving, to.vmi.arrived, to.vmi.other = false, false, true; to.taken {
				to.taken, to.lingering = false, to.open()
			}
		})
	case o.other:
		change(otherEnds, func(to *state) { to.vmi.other, to.lingering = false, 0 })
	case s.moves > 0 && hotplug.AtRest(sc.vmi(o)) == nil:
		change(migrationBegins, func(to *state) {
			to.moves--
			to.vmi.migration++
			to.vmi.moving, to.vmi.arrived, to.vmi.other = true, false, true
		})
	}
}

// arrive makes the status name the pods of volumes on new claims. A recorded pod that does not exist was deleted.
func (sc *scenario) arrive(s *state) {
	for _, status := range hotplug.Arrive(sc.vmi(&s.vmi)) {
		e := &s.vmi.entries[status.Name[0]-'A']
		if uid := uidOf(status.HotplugVolume.AttachPodUID); uid != e.uid {
			p := s.podByUID(uid)
			e.name, e.uid, e.orphan = nameOf(status.HotplugVolume.AttachPodName), uid, p == nil || p.deletedExternally
		}
	}
}

// takes reports whether the target's virt-handler plugs the guest's volumes into its QEMU.
func (sc *scenario) takes(s *state) bool {
	there := s.pods
	for i := range there {
		if there[i].node == s.vmi.node {
			there[i].state = noPod
		}
	}
	_, missing := hotplug.Arrivals(sc.vmi(&s.vmi), sc.observed(&s.vmi, &there, noPace, true).Pods)
	return len(missing) == 0
}

// open returns the volumes that the guest's QEMU has open.
func (s *state) open() (out set) {
	for v := range s.disks {
		if s.disks[v].open() {
			out |= 1 << v
		}
	}
	return out
}

// heldWhereOpen is H1 for each node, unless somebody deletes pods: a pod on the node must hold each volume that a QEMU
// there has open.
func (sc *scenario) heldWhereOpen(s *state) error {
	if sc.deletions > 0 {
		return nil
	}
	open, other := [2]set{}, 1-s.vmi.node
	open[s.vmi.node] |= sc.allAt(s.open(), s.vmi.node)
	if open[other] = sc.allAt(s.lingering, other); s.taken {
		open[other] |= sc.allAt(s.open(), other)
	}
	for i := range s.pods {
		if p := &s.pods[i]; p.alive() {
			open[p.node] &^= p.volumes
		}
	}
	for node, left := range open {
		for _, v := range volumeLists[left] {
			return fmt.Errorf("H1: QEMU on node %d has volume %s open, and no pod that runs and stays holds it there", node, v.Name)
		}
	}
	return nil
}

// restOfMoves returns the error of the pods' places at rest.
func (s *state) restOfMoves() error {
	if s.vmi.incomingOf != 0 {
		return errors.New("H4: what is recorded of a migration is left over")
	}
	for i := range s.pods {
		if p := &s.pods[i]; p.state != noPod && p.node != s.vmi.node {
			return fmt.Errorf("H4: pod %d is left over on the other node", p.name)
		}
	}
	return nil
}

var journeys = []scenario{
	{name: "a guest with a volume goes and returns", volumes: 1, first: volumeA, moves: 2, maxAttachmentPods: 1},
	{name: "a guest with two volumes in two pods goes", volumes: 2, first: volumeA | volumeB, firstApart: true, moves: 1, maxAttachmentPods: 1},
	{name: "a volume is unplugged and plugged around a migration", volumes: 1, first: volumeA, changes: 2, adds: all, removes: all, moves: 1, maxAttachmentPods: 1},
	{name: "one of two volumes is unplugged around a migration", large: true, volumes: 2, first: volumeA | volumeB, changes: 1, adds: all, removes: all, moves: 1, maxAttachmentPods: 1},
	{name: "a volume is added around a migration that may fail", large: true, volumes: 2, first: volumeA, changes: 1, adds: all, moves: 1, maxAttachmentPods: 1},
	{name: "a disk is copied to another claim and back", volumes: 1, first: volumeA, copies: volumeA, moves: 2, maxAttachmentPods: 1},
	{name: "one of two disks in a pod is copied to another claim", volumes: 2, first: volumeA | volumeB, copies: volumeA, moves: 1, maxAttachmentPods: 1},
	{name: "a volume is unplugged and plugged around its copy", large: true, volumes: 1, first: volumeA, copies: volumeA, changes: 2, adds: all, removes: all, moves: 1, maxAttachmentPods: 1},
	{name: "a pod is taken away around a copy", large: true, volumes: 1, first: volumeA, copies: volumeA, moves: 1, deletions: 1, maxAttachmentPods: 1},
	{name: "a pod is taken away around a migration", large: true, volumes: 1, first: volumeA, moves: 1, deletions: 1, maxAttachmentPods: 1},
}

// TestVolumesAreHeldWhereverTheGuestIs explores migrations with all other events in between.
func TestVolumesAreHeldWhereverTheGuestIs(t *testing.T) {
	exploration.EachScenario(t, journeys, nil, func(sc scenario) string { return sc.name },
		func(t *testing.T, sc scenario) (*exploration.Graph[state, step], error) {
			if sc.large && testing.Short() {
				t.Skip("it has many states")
			}
			sc.decide, sc.handle = hotplug.Decide, theVolume
			return explore(&sc)
		})
}

// TestWhatMustNotHappenInAMigrationIsCaught replaces virt-controller's decision by possible errors. The exploration
// must catch each.
func TestWhatMustNotHappenInAMigrationIsCaught(t *testing.T) {
	goes := scenario{volumes: 1, first: volumeA, moves: 1, maxAttachmentPods: 1}
	// everywhere treats pods on both nodes alike.
	everywhere := func(o hotplug.Observed) hotplug.Plan {
		for i := range o.Pods {
			o.Pods[i].Elsewhere = false
		}
		return hotplug.Decide(o)
	}
	// deserted believes that no QEMU of the guest is on the other node.
	deserted := func(o hotplug.Observed) hotplug.Plan {
		for i := range o.Pods {
			o.Pods[i].Left = true
		}
		return hotplug.Decide(o)
	}
	for name, test := range map[string]struct {
		decide func(hotplug.Observed) hotplug.Plan
		want   string
	}{
		"pods of the other node hold volumes for the guest":          {everywhere, "H1"},
		"pods are deleted while the source's QEMU has their volumes": {deserted, "H1"},
	} {
		t.Run(name, func(t *testing.T) {
			sc := goes
			sc.decide, sc.handle = test.decide, theVolume
			expectViolation(t, &sc, test.want)
		})
	}
}
