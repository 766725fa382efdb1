package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const (
	// virt-launcher has a shorter limit for a guest with stopped CPUs.
	maxHeld = 5 * time.Minute
	// whileFresh is the interval while a hold is fresh, which is as long as most drivers take.
	whileFresh = 50 * time.Millisecond
	fresh      = 5 * time.Second
)

// messageSilent is for an unknown hold that matters. The hold ends by itself.
const messageSilent = "the guest's node does not say whether the guest is held still"

// ephemeral returns the guest's volumes on claims that are not in its VM's spec.
func ephemeral(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (names []string) {
	if vmi == nil || vm == nil || vm.Spec.Template == nil {
		return nil
	}
	for _, volume := range OnClaims(vmi.Spec.Volumes) {
		if volumeclaim.Named(vm.Spec.Template.Spec.Volumes, volume[0]) == nil {
			names = append(names, volume[0])
		}
	}
	return names
}

func unsteady(vmi *v1.VirtualMachineInstance) string {
	switch {
	case vmi == nil:
		return ""
	case vmi.DeletionTimestamp != nil:
		return fmt.Sprintf("the VM %s is being stopped", vmi.Name)
	case vmi.Status.Phase != v1.Running:
		return fmt.Sprintf("the VM %s is being started", vmi.Name)
	case migration.InFlight(vmi):
		return fmt.Sprintf("the VM %s is being migrated", vmi.Name)
	}
	for i := range vmi.Status.VolumeStatus {
		volume := &vmi.Status.VolumeStatus[i]
		if volume.HotplugVolume == nil || volume.Phase == v1.VolumeReady {
			continue
		}
		if v := volumeclaim.Named(vmi.Spec.Volumes, volume.Name); v != nil && volumeclaim.Disk(&v.VolumeSource) != "" {
			return fmt.Sprintf("the volume %s of the VM %s is being plugged or unplugged", volume.Name, vmi.Name)
		}
	}
	return ""
}

// AsksHold reports whether the hold on the guest matters, and whether the guest agent must confirm it: once every
// snapshot is taken. It must be called after VolumeSnapshots were read.
func AsksHold(o Observed) (ask, verify bool) {
	if o.VMI == nil || o.Content == nil || o.Snapshot.DeletionTimestamp != nil || Ended(o.Snapshot) {
		return false, false
	}
	d, s := decision{o: o}, summarize(o)
	if s.token == Unheld || s.group != nil && free(o.VMI) {
		return false, false
	}
	return d.locked(), !d.cutTaken() && s.taken != nil
}

func (d *decision) held() bool {
	return d.o.Hold != nil && d.o.Hold.Lasts() && d.o.Hold.Holder == Holder(d.o.Snapshot)
}

// Holder returns the snapshot's identity for holds.
func Holder(s *snapshotv1.VirtualMachineSnapshot) string { return string(s.UID) }

// make creates the missing VolumeSnapshots, or the VolumeGroupSnapshot. A hold is only requested while there is none.
func (d *decision) make(s state) {
	alone := s.group != nil && d.o.VMI != nil && free(d.o.VMI)
	switch {
	case d.o.VMI == nil:
		d.createSnapshots(s, "")
	case d.held():
		d.createSnapshots(s, d.o.Hold.Token)
	case alone && unsteady(d.o.VMI) == "":
		d.createSnapshots(s, Unheld)
	case !alone && d.o.Hold == nil:
		d.wait(ReasonLocked, messageSilent, whileStored)
	case unsteady(d.o.VMI) != "":
		d.wait(ReasonLocked, unsteady(d.o.VMI), whileStored)
	default:
		d.Step, d.Timeout, d.After = Quiesce, maxHeld, whileStored
	}
}

func (d *decision) createSnapshots(s state, token string) {
	d.Step = Cut
	if s.group != nil {
		d.Group, d.Labels = s.group, d.labels(d.o.Content)
		d.Group.Token, d.Group.Label = token, GroupLabel(d.o.VM)
		return
	}
	for i := range s.missing {
		s.missing[i].Token = token
	}
	d.Cuts = s.missing
}

// breaks fails a snapshot whose VolumeSnapshots may not be of one point in time.
func (d *decision) breaks(s state) {
	name, hold := d.o.Snapshot.Spec.Source.Name, d.o.Hold
	switch {
	case s.made == 0 || s.token == Unheld:
	case s.mixed:
		d.fail(ReasonNotHeld, fmt.Sprintf("the disks of the VM %s were snapshotted at different times", name))
	case s.token == "" && d.o.VMI != nil:
		d.fail(ReasonStarted, fmt.Sprintf("the VM %s was started while its disks were being snapshotted", name))
	case s.token != "" && d.o.VMI == nil:
		d.fail(ReasonGuestLost, fmt.Sprintf("the guest of the VM %s has ended while its disks were being snapshotted", name))
	case s.token == "" || hold == nil || d.held() && hold.Token == s.token:
	case hold.Token == s.token:
		d.fail(ReasonNotHeld, fmt.Sprintf("the guest of the VM %s went on before all of its disks were snapshotted: %s", name, hold.Ended))
		if hold.TimedOut {
			d.indications(snapshotv1.SourceIndication{
				Indication: snapshotv1.VMSnapshotOnlineSnapshotIndication, Message: "The VM was running."},
				snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotQuiesceTimeoutIndication, Message: hold.Ended})
		}
	default:
		d.fail(ReasonNotHeld, fmt.Sprintf("the guest of the VM %s was moved or restarted while its disks were being snapshotted", name))
	}
}

// indicate adds to the status how the disks of a running guest were snapshotted.
func (d *decision) indicate(s state) {
	if s.token == "" {
		return
	}
	list := []snapshotv1.SourceIndication{{
		Indication: snapshotv1.VMSnapshotOnlineSnapshotIndication, Message: "The VM was running.",
	}}
	if s.token == Unheld {
		list = append(list, snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotNoGuestAgentIndication,
			Message: "There was no guest agent to freeze file systems. The guest went on, the storage took all disks at one time, and they are as after a power failure."})
	} else if hold := d.o.Hold; hold != nil && hold.Token == s.token {
		list = append(list, how(hold))
	}
	d.indications(list...)
}

// indicateWithoutDisks is for a guest that need not be held.
func (d *decision) indicateWithoutDisks() {
	if d.o.VMI == nil || len(d.o.Content.Spec.VolumeBackups) > 0 {
		return
	}
	conditions := d.o.VMI.Status.Conditions
	second := snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotNoGuestAgentIndication, Message: "The VM has no disk to snapshot, and no guest agent."}
	switch {
	case condition.IsTrue(conditions, v1.VirtualMachineInstancePaused):
		second = snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotPausedIndication, Message: "The VM was paused. It has no disk to snapshot."}
	case condition.IsTrue(conditions, v1.VirtualMachineInstanceAgentConnected):
		second = snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotGuestAgentIndication, Message: "The VM has no disk to snapshot, so its guest agent had nothing to freeze."}
	}
	d.indications(snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotOnlineSnapshotIndication, Message: "The VM was running."}, second)
}

// indicatePartial adds to the status that volumes are excluded.
func (d *decision) indicatePartial() {
	volumes := d.Snapshot.Status.SnapshotVolumes
	if volumes == nil || len(volumes.ExcludedVolumes) == 0 {
		return
	}
	d.indications(append(slices.Clone(d.Snapshot.Status.SourceIndications), snapshotv1.SourceIndication{
		Indication: snapshotv1.VMSnapshotPartialSnapshotIndication, Message: "Volumes on claims that can't be snapshotted are not included: see status.snapshotVolumes.",
	})...)
}

func how(hold *launch.Hold) snapshotv1.SourceIndication {
	held := float64(hold.Milliseconds) / 1000
	switch hold.Method {
	case launch.MethodAgent:
		return snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotGuestAgentIndication,
			Message: fmt.Sprintf("The guest agent had frozen the guest's file systems, for %.2f s.", held)}
	case launch.MethodPaused:
		return snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotPausedIndication,
			Message: "The VM was paused: its disks are as after a power failure."}
	}
	if hold.Refusal != "" {
		// virt-launcher has limited the length of the guest's text.
		line := strings.Join(strings.FieldsFunc(hold.Refusal, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
		return snapshotv1.SourceIndication{Indication: QuiesceFailed,
			Message: fmt.Sprintf("The guest agent could not freeze file systems: %s. The guest was stopped for %.2f s, and its disks are as after a power failure.",
				strings.TrimRight(line[:min(len(line), launch.MaxRefusal)], "."), held)}
	}
	if hold.NothingToFreeze {
		return snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotGuestAgentIndication,
			Message: fmt.Sprintf("The guest agent found no file system to freeze. The guest was stopped for %.2f s.", held)}
	}
	return snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotNoGuestAgentIndication,
		Message: fmt.Sprintf("No guest agent had frozen file systems. The guest was stopped for %.2f s, and its disks are as after a power failure.", held)}
}

// QuiesceFailed means that the guest's agent could not freeze file systems.
const QuiesceFailed snapshotv1.Indication = "QuiesceFailed"

// indications sorts the set by name.
func (d *decision) indications(list ...snapshotv1.SourceIndication) {
	slices.SortFunc(list, func(a, b snapshotv1.SourceIndication) int { return cmp.Compare(a.Indication, b.Indication) })
	status := d.Snapshot.Status
	status.SourceIndications, status.Indications = list, nil //nolint:staticcheck // Programs that are older read the deprecated field.
	for _, i := range list {
		status.Indications = append(status.Indications, i.Indication) //nolint:staticcheck // Likewise.
	}
}

// NotHeld returns the snapshot with the status for a guest that could not be held, forGood or for now.
func NotHeld(o Observed, p Plan, sentence string, forGood bool) *snapshotv1.VirtualMachineSnapshot {
	d := &decision{Plan: Plan{Snapshot: p.Snapshot.DeepCopy()}, o: o}
	name := o.Snapshot.Spec.Source.Name
	if forGood {
		d.fail(ReasonNotHeld, fmt.Sprintf("the guest of the VM %s could not be held still: %s", name, sentence))
		d.indications(snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotOnlineSnapshotIndication, Message: "The VM was running."},
			snapshotv1.SourceIndication{Indication: snapshotv1.VMSnapshotQuiesceTimeoutIndication, Message: sentence})
		return d.Snapshot
	}
	d.wait(ReasonLocked, fmt.Sprintf("the guest of the VM %s can't be held still just now: %s", name, sentence), whileStored)
	return d.Snapshot
}
