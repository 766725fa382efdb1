// Package rollout decides how the changes of a VM's template reach its running VMI: at once, by a
// migration, or by a restart.
//
// It owns that decision (Compare), what of a template is written into a VMI's spec for it
// (Carry), and how much room a guest is started with (Prepare). How volumes follow the template is
// decided by packages hotplugspec and volumemigration, which it asks. It is pure: it must not import
// a client.
//
//	field of the template                       Stage      LiveUpdate
//	hotpluggable volumes and their disks        live       live
//	claims (updateVolumesStrategy Migration)    migration  migration
//	nodeSelector, affinity, tolerations         restart    live: the next migration goes by them
//	interfaces[].state: up, down                restart    live
//	interfaces that come, go or are absent      restart    live: in place, or by a migration (nics.go)
//	networks[].multus.networkName               restart    migration
//	domain.cpu.sockets, domain.memory.guest     restart    live, where the machine has room (Prepare)
//	everything else                             restart    restart
//
// A VMI whose guest has not started follows its template only in the volumes: its pod is made already.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplugspec"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// Way is how a change reaches the guest.
type Way string

const (
	// Live changes reach the VMI while its guest runs.
	Live Way = "live"
	// Migration changes take a migration, which is asked for by itself.
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

// Change is a field in which a VM's template differs from what its VMI has.
type Change struct {
	Path   string
	Way    Way
	Reason string
}

// Input is what changes are found in.
type Input struct {
	Strategy v1.VMRolloutStrategy
	// VMName is the VM's.
	VMName string
	// Started is the template that VMI was made from, nil if that is not known: then only
	// changes of what is carried into a VMI are found.
	Started  *v1.VirtualMachineInstanceSpec
	VMI      *v1.VirtualMachineInstance
	Template *v1.VirtualMachineInstanceSpec
	// Plugged is the template as far as hotpluggable volumes are plugged and unplugged by it: volumemigration.Held.
	Plugged *v1.VirtualMachineInstanceSpec
	// Moves are the volumes whose disks are to be copied to the template's claims.
	Moves []volumemigration.Move
}

// Compare lists the changes of a template that its VMI does not have: neither from its start nor
// carried into it since. They are sorted by path.
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
	add(Live, ReasonPlugged, plugs(in)...)
	for _, move := range in.Moves {
		add(Migration, ReasonCopied, fmt.Sprintf("%s.volumes[%s]", templatePath, move.Volume))
	}
	if in.Started != nil {
		started := volumemigration.Alike(in.Started, &in.VMI.Spec, in.Template, in.Moves)
		from, to := lasting(started), lasting(in.Template)
		interfaces.level(from, to, &in.VMI.Spec)
		add(Restart, ReasonMachine, Paths(from, to, in.VMName)...)
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// Carry writes into the spec of a VMI what of its VM's template reaches a running guest, but for
// volumes, and reports whether that changes anything.
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
	if n := planNICs(&vmi.Spec, template.DeepCopy(), ""); n.carries() {
		vmi.Spec.Domain.Devices.Interfaces, vmi.Spec.Networks = n.interfaces, n.networks
		changed = true
	}
	changed = carrySockets(strategy, vmi, template) || changed
	return carryMemory(strategy, vmi, template) || changed
}

// Prepare gives the spec of a VMI that is made from a template room for what it may get while its guest
// runs, unless the template says how much. A guest that could not get more has no room.
func Prepare(spec *v1.VirtualMachineInstanceSpec, strategy v1.VMRolloutStrategy, limits clusterconfig.LiveUpdate) {
	if strategy != v1.VMRolloutStrategyLiveUpdate {
		return
	}
	prepareSockets(spec, limits)
	prepareMemory(spec, limits)
}

// hindrance is why a VMI follows its VM's template only after a restart, "" if it follows.
func hindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance) string {
	switch {
	case strategy != v1.VMRolloutStrategyLiveUpdate:
		return ReasonStaged
	case vmi.Status.Phase != v1.Running:
		return ReasonNotRunning
	}
	return ""
}

// fixedHindrance is hindrance of what a guest keeps for all its life if fixed says why of a spec, be it what the guest has
// or what the template asks for.
func fixedHindrance(strategy v1.VMRolloutStrategy, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, fixed func(*v1.VirtualMachineInstanceSpec) string) string {
	return cmp.Or(hindrance(strategy, vmi), fixed(&vmi.Spec), fixed(template))
}

// liveUnless is a change that reaches the guest while it runs, unless there is a hindrance: then it waits for a restart.
func liveUnless(hindrance, path, live string) Change {
	if hindrance != "" {
		return Change{Path: path, Way: Restart, Reason: hindrance}
	}
	return Change{Path: path, Way: Live, Reason: live}
}

// placement is the part of a spec that says where a guest may run.
func placement(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	return &v1.VirtualMachineInstanceSpec{NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations}
}

// plugs lists what is plugged and unplugged of a VMI to have the volumes of its VM's template.
func plugs(in Input) []string {
	to := in.VMI.DeepCopy()
	hotplugspec.SyncTemplate(to, in.Plugged)
	return Paths(&in.VMI.Spec, &to.Spec, in.VMName)
}

// lasting is the part of a spec that stays as it is for a guest's life, and its interfaces (nics.level).
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
