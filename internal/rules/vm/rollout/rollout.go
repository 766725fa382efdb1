// Package rollout decides how changes of a VM's template reach its running VMI: at once, by a migration, or by a
// restart.
//
// It owns that decision (Compare), the copies of a template's parts in a VMI's spec (Carry), and a new guest's room for
// growth (Prepare). Packages hotplugspec and volumemigration decide how volumes follow the template. It must not import a
// client.
//
//	field of the template                       Stage      LiveUpdate
//	hotpluggable volumes and their disks        live       live
//	claims (updateVolumesStrategy Migration)    migration  migration
//	nodeSelector, affinity, tolerations         restart    live: the next migration obeys them
//	interfaces[].state: up, down                restart    live
//	interfaces added, removed or absent         restart    live: in place, or by a migration (nics.go)
//	networks[].multus.networkName               restart    migration
//	domain.cpu.sockets, domain.memory.guest     restart    live, if the machine has room (Prepare)
//	everything else                             restart    restart
//
// A VMI whose guest has not started follows its template only in the volumes: its pod already exists.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// Way is how a change reaches the guest.
type Way string

// The ways.
const (
	Live Way = "live"
	// Migration changes need a migration, which is requested automatically.
	Migration Way = "migration"
	// Restart changes wait for the VM's next start.
	Restart Way = "restart"
)

// Reasons of changes.
const (
	ReasonPlugged    = "hotpluggable volumes are plugged and unplugged"
	ReasonCopied     = "the disk is copied to another claim"
	ReasonPlacement  = "the guest stays where it is; where it goes next is chosen by it"
	ReasonLink       = "the link of the interface is switched"
	ReasonNIC        = "interfaces are plugged and unplugged, in place or by a migration"
	ReasonStaged     = "the KubeVirt object's vmRolloutStrategy is Stage"
	ReasonNotRunning = "the launcher pod has been made without it, and the guest does not run yet"
	ReasonMachine    = "it can't be changed while the guest runs"
	ReasonCPUs       = "CPUs are plugged and unplugged"
	ReasonNoSocket   = "the guest was started with room for fewer sockets (maxSockets)"
	ReasonEmulated   = "the guest is emulated, and QEMU can't take CPUs out of it"
	ReasonPinned     = "the guest has CPUs of its own, or a NUMA topology"
	ReasonQueues     = "the guest's disks or interfaces have as many queues as it was started with CPUs"
	ReasonNamedCPU   = "the template's resources say how much CPU the pod gets"

	ReasonMemory      = "memory is plugged and unplugged"
	ReasonNoMemory    = "the guest was started with room for less memory (maxGuest)"
	ReasonBootMemory  = "the guest keeps the memory that it was started with"
	ReasonMemoryBlock = "memory is plugged in multiples of 2Mi"
	ReasonHugepages   = "the guest's memory is of hugepages"
	ReasonNamedMemory = "the template's resources say how much memory the pod gets"
)

// Change is a difference of the VM's template from its VMI.
type Change struct {
	Path   string
	Way    Way
	Reason string
}

// Input is the input of Compare.
type Input struct {
	Strategy v1.VMRolloutStrategy
	VMName   string
	// Started is the template from which the VMI was created. If it is unknown, Compare finds only the changes that Carry
	// copies.
	Started  *v1.VirtualMachineInstanceSpec
	VMI      *v1.VirtualMachineInstance
	Template *v1.VirtualMachineInstanceSpec
	// Plugged is volumemigration.TemplateForPlugging, by which volumes are plugged and unplugged.
	Plugged *v1.VirtualMachineInstanceSpec
	Moves   []volumemigration.Move
}

// Compare returns the template's changes that the VMI neither started with nor got from Carry, sorted by path.
func Compare(in Input) []Change {
	way, placed, why := Live, ReasonPlacement, hindrance(in.Strategy, in.VMI)
	if why != "" {
		way, placed = Restart, why
	}
	interfaces := planNICs(&in.VMI.Spec, in.Template, why)
	changes := slices.Clone(interfaces.changes)
	add := func(way Way, reason string, paths ...string) {
		for _, path := range paths {
			changes = append(changes, Change{Path: path, Way: way, Reason: reason})
		}
	}
	add(way, placed, Paths(placement(&in.VMI.Spec), placement(in.Template), in.VMName)...)
	changes = append(changes, socketChanges(in)...)
	changes = append(changes, memoryChanges(in)...)
	plugged := in.VMI.DeepCopy()
	hotplugspec.SyncTemplate(plugged, in.Plugged)
	add(Live, ReasonPlugged, Paths(&in.VMI.Spec, &plugged.Spec, in.VMName)...)
	for _, move := range in.Moves {
		add(Migration, ReasonCopied, fmt.Sprintf("%s.volumes[%s]", templatePath, move.Volume))
	}
	if in.Started != nil {
		started := volumemigration.WithMovedClaims(in.Started, &in.VMI.Spec, in.Template, in.Moves)
		from, to := lasting(started), lasting(in.Template)
		interfaces.level(from, to, &in.VMI.Spec)
		levelMemoryRequest(from, to)
		add(Restart, ReasonMachine, Paths(from, to, in.VMName)...)
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// Carry copies the parts of a VM's template that reach a running guest, except volumes, into the VMI's spec, and
// reports whether that changes anything.
func Carry(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	if hindrance(strategy, vmi) != "" {
		return false
	}
	changed := false
	if !equality.Semantic.DeepEqual(placement(&vmi.Spec), placement(template)) {
		from := template.DeepCopy()
		vmi.Spec.NodeSelector, vmi.Spec.Affinity, vmi.Spec.Tolerations = from.NodeSelector, from.Affinity, from.Tolerations
		changed = true
	}
	if n := planNICs(&vmi.Spec, template.DeepCopy(), ""); slices.ContainsFunc(n.changes, func(c Change) bool { return c.Way != Restart }) {
		vmi.Spec.Domain.Devices.Interfaces, vmi.Spec.Networks = n.interfaces, n.networks
		changed = true
	}
	changed = copySockets(strategy, vmi, template) || changed
	return copyMemory(strategy, vmi, template) || changed
}

// Prepare adds room for growth to a new VMI's spec, unless the template sets it. A guest that can't grow gets none.
func Prepare(spec *v1.VirtualMachineInstanceSpec, strategy v1.VMRolloutStrategy, limits clusterconfig.LiveUpdate) {
	if strategy != v1.VMRolloutStrategyLiveUpdate {
		return
	}
	prepareSockets(spec, limits)
	prepareMemory(spec, limits)
}

// hindrance returns why a VMI follows its VM's template only after a restart, "" if it follows now.
func hindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance) string {
	switch {
	case strategy != v1.VMRolloutStrategyLiveUpdate:
		return ReasonStaged
	case vmi.Status.Phase != v1.Running:
		return ReasonNotRunning
	}
	return ""
}

// fixedHindrance is hindrance for a property that a guest keeps for life if fixed returns a reason.
func fixedHindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, fixed func(*v1.VirtualMachineInstanceSpec) string) string {
	return cmp.Or(hindrance(strategy, vmi), fixed(&vmi.Spec), fixed(template))
}

func liveUnless(hindrance, path, live string) Change {
	if hindrance != "" {
		return Change{Path: path, Way: Restart, Reason: hindrance}
	}
	return Change{Path: path, Way: Live, Reason: live}
}

func placement(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	return &v1.VirtualMachineInstanceSpec{NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations}
}

// lasting returns the part of a spec that is fixed for a guest's life, and its interfaces (nics.level).
func lasting(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out := hotplugspec.Lasting(spec)
	out.NodeSelector, out.Affinity, out.Tolerations = nil, nil, nil
	if out.Domain.CPU == nil {
		out.Domain.CPU = &v1.CPU{}
	}
	out.Domain.CPU.Sockets = 0
	if out.Domain.Memory == nil {
		out.Domain.Memory = &v1.Memory{}
	}
	out.Domain.Memory.Guest = nil
	return out
}
