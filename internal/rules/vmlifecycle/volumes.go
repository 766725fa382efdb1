package vmlifecycle

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/rollout"
	"drydock.dev/drydock/internal/rules/vmistatus"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// ReasonVolumesNotCopied is ManualRecoveryRequired's.
const ReasonVolumesNotCopied = "VolumesNotCopied"

// volumesPath is where the volumes are of which some are refused.
const volumesPath = "spec.template.spec.volumes"

// moves are the volumes of a VM whose disks are copied to other claims.
type moves struct {
	// wanted are those that the template asks for of a VMI that stays, refusals why it can't have others.
	wanted   []volumemigration.Move
	refusals []string
	// unfinished are those that the VM has a record of, and of which nobody knows that they came to
	// their end.
	unfinished []volumemigration.Move
}

// compareVolumes finds out which disks are to be copied, and records them before the VMI hears of it: a VM
// whose VMI vanishes in the meantime must not take the copies for its disks (decision 340).
func (d *decision) compareVolumes() {
	if d.VM.Spec.Template == nil {
		return
	}
	// Its volumes are the VM's own, whatever it refers to.
	m, template := &d.moves, &d.VM.Spec.Template.Spec
	if d.stays() && volumemigration.ByMigration(&d.VM.Spec) {
		m.wanted, m.refusals = volumemigration.Compare(d.vmi, template)
	}
	recorded := volumemigration.Recorded(&d.VM.Status)
	m.unfinished = volumemigration.Kept(recorded, d.vmi, template)
	if len(m.unfinished) < len(recorded) && !d.o.VMIAsked {
		// What a cache shows of a VMI is not enough to forget that its disks are being copied.
		d.needs(NeedVMI)
	}
	volumemigration.Record(&d.VM.Status, volumemigration.With(m.wanted, m.unfinished))
}

// unrecovered reports whether the VM must not be started with the claims of its template.
func (d *decision) unrecovered() bool {
	return len(d.moves.unfinished) > 0 && (d.vmi == nil || d.vmi.IsFinal())
}

// moveVolumes has the status of the VMI that stays list the disks that are to be copied, once the VM has the
// record of them, and reports whether that changes anything.
func (d *decision) moveVolumes(vmi *v1.VirtualMachineInstance) bool {
	under := volumemigration.Of(vmi)
	facts := vmistatus.Facts{Now: d.o.Now}
	renamed := false
	switch inFlight := migration.InFlight(vmi); {
	case len(d.moves.wanted) == 0 && !d.changesVolumes():
		return !inFlight && d.rename(vmi)
	case inFlight && (len(under) == 0 || slices.Equal(under, d.moves.wanted)):
		return false
	case inFlight:
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Canceled: true,
			Message: "the VM's template names other claims again; the migration is being stopped: volumes " + volumemigration.Text(under)})
	case !volumemigration.Covers(volumemigration.Recorded(&d.o.VM.Status), d.moves.wanted):
		return false
	default:
		renamed = d.rename(vmi)
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Migrated: volumemigration.Write(d.moves.wanted),
			Message: "the disks are copied to other claims by a migration: volumes " + volumemigration.Text(d.moves.wanted)})
	}
	before := vmi.Status
	vmi.Status = vmistatus.Project(vmi, vmistatus.Controller, facts)
	return renamed || !equality.Semantic.DeepEqual(before, vmi.Status)
}

// held is the template as far as hotpluggable volumes are plugged and unplugged by it.
func (d *decision) held() *v1.VirtualMachineInstanceSpec {
	return volumemigration.Held(d.vmi, &d.template().Spec, volumemigration.ByMigration(&d.VM.Spec), d.moves.unfinished)
}

// changesVolumes reports whether the VMI says of disks that they are copied, or were to be; it lists none without.
func (d *decision) changesVolumes() bool {
	return condition.Find(d.vmi.Status.Conditions, v1.VirtualMachineInstanceVolumesChange) != nil
}

// rename has the VMI name the claims that it is on as the template does.
func (d *decision) rename(vmi *v1.VirtualMachineInstance) bool {
	return volumemigration.ByMigration(&d.VM.Spec) && volumemigration.Rename(&vmi.Spec, &d.VM.Spec.Template.Spec)
}

// reportRecovery says that the VM can't be started as it is.
func (d *decision) reportRecovery() {
	if !d.unrecovered() {
		condition.Drop(&d.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired)
		return
	}
	condition.Set(&d.VM.Status.Conditions, v1.VirtualMachineCondition{
		Type: v1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Reason: ReasonVolumesNotCopied,
		Message: volumemigration.Recovery(d.moves.unfinished),
	}, d.o.Now)
}

// restartMessage says what a restart would change, and why it needs one. Each path is in it once.
func (d *decision) restartMessage(waiting []rollout.Change) string {
	var reasons []string
	because := map[string][]string{}
	for _, c := range waiting {
		if c.Reason == rollout.ReasonMachine && len(d.moves.refusals) > 0 {
			c.Reason = "" // what is said of the volumes is more
		}
		if because[c.Reason] = append(because[c.Reason], c.Path); len(because[c.Reason]) == 1 {
			reasons = append(reasons, c.Reason)
		}
	}
	var sentences []string
	for _, reason := range reasons {
		sentence := strings.Join(because[reason], ", ")
		if reason != "" {
			sentence += ", because " + reason
		}
		sentences = append(sentences, sentence)
	}
	return "these changes take effect when the VM is restarted: " + strings.Join(append(sentences, d.moves.refusals...), "; ")
}
