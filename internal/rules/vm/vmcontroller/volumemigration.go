package vmcontroller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/rollout"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// ReasonVolumesNotCopied is the reason of ManualRecoveryRequired.
const ReasonVolumesNotCopied = "VolumesNotCopied"

const volumesPath = "spec.template.spec.volumes"

type moves struct {
	// wanted are the template's moves for the current VMI, refusals why others are impossible.
	wanted   []volumemigration.Move
	refusals []string
	// left means that the only refusal is volumemigration.WhyStillLocal's.
	left bool
	// unfinished are recorded moves that are not known to have completed.
	unfinished []volumemigration.Move
	// missing is a claim of wanted moves that does not exist. None is recorded meanwhile.
	missing string
}

// destinationInterval is how often a missing claim is looked for.
const destinationInterval = 5 * time.Second

// The VM records the disks to copy before the VMI gets them: a VM whose VMI vanishes must not take an incomplete copy
// for its disk (decision 340).
func (d *decision) compareVolumes() {
	if d.VM.Spec.Template == nil {
		return
	}
	// Types and preferences have no volumes.
	m, template := &d.moves, &d.VM.Spec.Template.Spec
	if d.hasActiveVMI() && volumemigration.ByMigration(&d.VM.Spec) {
		m.wanted, m.refusals = volumemigration.Compare(d.vmi, template)
		if why := volumemigration.WhyStillLocal(d.vmi, m.wanted); why != "" {
			m.wanted, m.refusals, m.left = nil, []string{why}, true
		}
	}
	recorded := volumemigration.Recorded(&d.VM.Status)
	m.unfinished = volumemigration.Unfinished(recorded, d.vmi, template)
	if len(m.unfinished) < len(recorded) && !d.o.VMIAsked {
		// A cache is not enough to forget that disks are being copied.
		d.needs(NeedVMI)
	}
	d.askForDestinations()
	wanted := m.wanted
	if m.missing != "" {
		wanted = nil
	}
	entries := volumemigration.Record(&d.VM.Status, volumemigration.With(wanted, m.unfinished))
	if d.vmi != nil {
		volumemigration.Describe(entries, d.vmi, d.o.Destinations)
	}
}

// DestinationNames returns the claims to which the template wants disks of the VMI to be copied.
func DestinationNames(o *Observed) []string {
	var names []string
	if o.VMI != nil && o.VM.Spec.Template != nil {
		moves, _ := volumemigration.Compare(o.VMI, &o.VM.Spec.Template.Spec)
		for _, m := range moves {
			names = append(names, m.To)
		}
	}
	return names
}

// askForDestinations looks for the claims of moves that the VMI does not have yet.
func (d *decision) askForDestinations() {
	m := &d.moves
	switch {
	case len(m.wanted) == 0 || slices.Equal(volumemigration.Of(d.vmi), m.wanted):
	case d.o.Destinations == nil:
		d.needs(NeedDestinations)
	default:
		m.missing = volumemigration.Missing(m.wanted, d.o.Destinations)
	}
}

// needsRecovery reports whether the VM must not start with the claims of its template.
func (d *decision) needsRecovery() bool {
	return len(d.moves.unfinished) > 0 && (d.vmi == nil || d.vmi.IsFinal())
}

// The VM has recorded the disks before they are in the VMI's status.
func (d *decision) moveVolumes(vmi *v1.VirtualMachineInstance) bool {
	under := volumemigration.Of(vmi)
	facts := vmistatus.Facts{Now: d.o.Now}
	renamed := false
	switch inFlight := migration.InFlight(vmi); {
	case len(d.moves.wanted) == 0 && d.reportsNoCopies():
		return !inFlight && d.rename(vmi)
	case inFlight && (len(under) == 0 || slices.Equal(under, d.moves.wanted)):
		return false
	case inFlight:
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Canceled: true,
			Message: "the VM's template names other claims again; the migration is being stopped: volumes " + volumemigration.Text(under)})
	case d.moves.missing != "":
		d.After = destinationInterval
		// KubeVirt's clients match the first sentence.
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Idle: vmistatus.ReasonDestinationMissing,
			Message: fmt.Sprintf("One of the destination volumes doesn't exist: PVC %s/%s. The disks are copied as soon as it does", d.VM.Namespace, d.moves.missing)})
	case !volumemigration.Covers(volumemigration.Recorded(&d.o.VM.Status), d.moves.wanted):
		return false
	case len(d.moves.wanted) == 0:
		renamed = d.rename(vmi)
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Idle: v1.VirtualMachineInstanceReasonVolumesChangeCancellation,
			Message: "no disk is copied to another claim any more: the VM's template has changed again"})
	default:
		renamed = d.rename(vmi)
		migrated := vmi.Status.MigratedVolumes
		if !slices.Equal(under, d.moves.wanted) {
			migrated = volumemigration.Write(d.moves.wanted)
			volumemigration.Describe(migrated, vmi, d.o.Destinations)
		}
		facts.Volumes = vmistatus.Known(vmistatus.Volumes{Migrated: migrated,
			Message: "the disks are copied to other claims by a migration: volumes " + volumemigration.Text(d.moves.wanted) + keptBy(vmi)})
	}
	before := vmi.Status
	vmi.Status = vmistatus.Project(vmi, vmistatus.Controller, facts)
	return renamed || !equality.Semantic.DeepEqual(before, vmi.Status)
}

// keptBy returns the obstacle that keeps the guest on its node however its disks are moved, as the end of a sentence.
func keptBy(vmi *v1.VirtualMachineInstance) string {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsStorageLiveMigratable)
	if c == nil || c.Status != corev1.ConditionFalse {
		return ""
	}
	return ". This waits: " + c.Message
}

// reportsNoCopies reports whether the VMI's status says nothing about disks to copy, except that earlier ones were
// given up.
func (d *decision) reportsNoCopies() bool {
	c := condition.Find(d.vmi.Status.Conditions, v1.VirtualMachineInstanceVolumesChange)
	return c == nil || c.Status == corev1.ConditionFalse && c.Reason == v1.VirtualMachineInstanceReasonVolumesChangeCancellation &&
		len(d.vmi.Status.MigratedVolumes) == 0
}

func (d *decision) templateForPlugging() *v1.VirtualMachineInstanceSpec {
	return volumemigration.TemplateForPlugging(d.vmi, &d.template().Spec, volumemigration.ByMigration(&d.VM.Spec), d.moves.unfinished)
}

func (d *decision) rename(vmi *v1.VirtualMachineInstance) bool {
	return volumemigration.ByMigration(&d.VM.Spec) && volumemigration.Rename(&vmi.Spec, &d.VM.Spec.Template.Spec)
}

func (d *decision) reportRecovery() {
	if !d.needsRecovery() {
		condition.Drop(&d.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired)
		return
	}
	condition.Set(&d.VM.Status.Conditions, v1.VirtualMachineCondition{
		Type: v1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Reason: ReasonVolumesNotCopied,
		Message: volumemigration.Recovery(d.moves.unfinished),
	}, d.o.Now)
}

func (d *decision) restartMessage(waiting []rollout.Change) string {
	if d.moves.left && !slices.ContainsFunc(waiting, func(c rollout.Change) bool { return !strings.HasPrefix(c.Path, volumesPath) }) {
		return d.moves.refusals[0]
	}
	var reasons []string
	because := map[string][]string{}
	for _, c := range waiting {
		if c.Reason == rollout.ReasonMachine && len(d.moves.refusals) > 0 {
			c.Reason = "" // the refusals say more about the volumes
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
