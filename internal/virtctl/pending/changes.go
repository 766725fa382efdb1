package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

type effect string

const (
	live      effect = "live"
	migration effect = "migration"
	restart   effect = "restart"
)

type change struct {
	// Path is a field of the VM, if known.
	Path     string `json:"path,omitempty"`
	Effect   effect `json:"effect"`
	WaitsFor string `json:"waitsFor"`
	// Condition is the source of the information, and Reason its reason; both are "" if the objects differ
	// without a condition.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Fields of a VM whose changes have their own conditions.
const (
	template    = "spec.template.spec"
	socketsPath = template + ".domain.cpu.sockets"
	memoryPath  = template + ".domain.memory.guest"
	volumesPath = template + ".volumes"
)

func interfacePath(name string) string {
	return fmt.Sprintf("%s.domain.devices.interfaces[%s]", template, name)
}

func networkPath(name string) string {
	return fmt.Sprintf("%s.networks[%s].multus.networkName", template, name)
}

type facts struct {
	vm *v1.VirtualMachine
	// vmi is nil if the VM has none.
	vmi        *v1.VirtualMachineInstance
	migrations []v1.VirtualMachineInstanceMigration
}

// Live changes come first, restarts last. Each path occurs once.
func (f *facts) changes() []change {
	list := []change{}
	if f.vmi == nil || f.vmi.IsFinal() {
		return list
	}
	add := func(changes ...change) {
		for _, c := range changes {
			if c.Path == "" || !slices.ContainsFunc(list, func(other change) bool { return other.Path == c.Path }) {
				list = append(list, c)
			}
		}
	}
	restarts := f.restarts()
	waits := map[string]bool{}
	for _, c := range restarts {
		waits[c.Path] = true
	}
	needs, noRoom := f.needs()
	add(f.resources(noRoom)...)
	add(needs...)
	add(f.plugging()...)
	add(f.volumes()...)
	add(f.held(waits)...)
	add(f.unsynchronized(len(list) > 0)...)
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(order[a.Effect], order[b.Effect]) })
	return append(list, restarts...)
}

var order = map[effect]int{live: 0, migration: 1, restart: 2}

func (f *facts) condition(kind v1.VirtualMachineInstanceConditionType, statuses ...corev1.ConditionStatus) *v1.VirtualMachineInstanceCondition {
	for i := range f.vmi.Status.Conditions {
		if c := &f.vmi.Status.Conditions[i]; c.Type == kind && slices.Contains(statuses, c.Status) {
			return c
		}
	}
	return nil
}

// restarts returns the changes in RestartRequired.
func (f *facts) restarts() []change {
	for i := range f.vm.Status.Conditions {
		c := &f.vm.Status.Conditions[i]
		if c.Type != v1.VirtualMachineRestartRequired || c.Status != corev1.ConditionTrue {
			continue
		}
		var list []change
		for _, w := range readRestart(c.Message) {
			list = append(list, change{w.path, restart, "a restart of the VM: " + w.why, string(c.Type), c.Reason})
		}
		return list
	}
	return nil
}

// needs returns the changes in MigrationRequired. noRoom is the one about a larger launcher pod, whose path
// only other conditions know.
func (f *facts) needs() (list []change, noRoom *change) {
	c := f.condition(v1.VirtualMachineInstanceMigrationRequired, corev1.ConditionTrue, corev1.ConditionFalse)
	if c == nil {
		return nil, nil
	}
	needs, immovable := readNeeds(c.Message)
	for _, n := range needs {
		next := change{Path: n.path, Effect: migration, Condition: string(c.Type), Reason: c.Reason}
		switch {
		case n.futile:
			next.Effect, next.WaitsFor = live, n.what
		case c.Status == corev1.ConditionTrue:
			next.WaitsFor = f.move(immovable) + ": " + n.what
		default:
			next.Effect = live
			next.WaitsFor = "the launcher pod to get it in place, or ten seconds without that, and then a migration: " + n.what
		}
		if n.room {
			noRoom = &next
			continue
		}
		list = append(list, next)
	}
	return list, noRoom
}

func (f *facts) move(immovable string) string {
	if immovable != "" {
		return "a migration, which can't be made (" + immovable + ")"
	}
	if m := f.underWay(); m != nil {
		text := fmt.Sprintf("migration %s, which is %s", m.Name, cmp.Or(m.Status.Phase, v1.MigrationPending))
		for _, c := range m.Status.Conditions {
			if string(c.Type) == layout.MigrationWaiting && c.Status == corev1.ConditionTrue {
				text += " (" + c.Message + ")"
			}
		}
		return text
	}
	return "a migration, which is made where the cluster's workloadUpdateMethods have LiveMigrate, or by 'virtctl migrate'"
}

// underWay returns the VMI's migration that has not ended, nil for none.
func (f *facts) underWay() *v1.VirtualMachineInstanceMigration {
	for i := range f.migrations {
		if m := &f.migrations[i]; !m.IsFinal() {
			return m
		}
	}
	return nil
}

func (f *facts) resources(noRoom *change) []change {
	var list []change
	for _, of := range []struct {
		condition v1.VirtualMachineInstanceConditionType
		path      string
	}{{v1.VirtualMachineInstanceVCPUChange, socketsPath}, {v1.VirtualMachineInstanceMemoryChange, memoryPath}} {
		c := f.condition(of.condition, corev1.ConditionTrue)
		if c == nil {
			continue
		}
		next := change{of.path, live, cmp.Or(c.Message, c.Reason, "the guest"), string(c.Type), c.Reason}
		if noRoom != nil {
			next = *noRoom
			next.Path = of.path
			noRoom = nil
		}
		list = append(list, next)
	}
	if noRoom != nil {
		list = append(list, *noRoom)
	}
	return list
}

func (f *facts) plugging() []change {
	var list []change
	for i := range f.vmi.Spec.Domain.Devices.Interfaces {
		iface := &f.vmi.Spec.Domain.Devices.Interfaces[i]
		absent, there := iface.State == v1.InterfaceStateAbsent, inGuest(f.vmi, iface.Name)
		switch {
		case f.vmi.Status.Phase != v1.Running || absent != there:
		case absent:
			list = append(list, change{Path: interfacePath(iface.Name) + ".state", Effect: live, WaitsFor: "the guest to release the interface"})
		default:
			list = append(list, change{Path: interfacePath(iface.Name), Effect: live, WaitsFor: "the guest to get the interface, which its launcher pod has"})
		}
	}
	return list
}

func inGuest(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Status.Interfaces, func(s v1.VirtualMachineInstanceNetworkInterface) bool {
		return s.Name == name && strings.HasPrefix(s.InfoSource, "domain")
	})
}

func (f *facts) volumes() []change {
	var list []change
	for i := range f.vmi.Status.VolumeStatus {
		if s := &f.vmi.Status.VolumeStatus[i]; s.HotplugVolume != nil && s.Phase != v1.VolumeReady {
			list = append(list, change{Path: fmt.Sprintf("%s[%s]", volumesPath, s.Name), Effect: live,
				WaitsFor: fmt.Sprintf("the volume, which is %s: %s", cmp.Or(s.Phase, v1.VolumePending), cmp.Or(s.Message, s.Reason, "it says no more"))})
		}
	}
	if c := f.condition(v1.VirtualMachineInstanceVolumesChange, corev1.ConditionTrue); c != nil {
		list = append(list, change{volumesPath, migration, f.move("") + ": " + cmp.Or(c.Message, "disks are copied to other claims"), string(c.Type), c.Reason})
	}
	return list
}

// The VMI lacks these changes because it is being migrated. waits has the paths that wait for a restart.
func (f *facts) held(waits map[string]bool) []change {
	m := f.underWay()
	if m == nil || f.vm.Spec.Template == nil {
		return nil
	}
	var list []change
	for _, path := range differences(&f.vmi.Spec, &f.vm.Spec.Template.Spec) {
		if !waits[path] {
			list = append(list, change{Path: path, Effect: live, WaitsFor: fmt.Sprintf("the end of migration %s, which is %s: "+
				"the VMI gets nothing while it is being migrated", m.Name, cmp.Or(m.Status.Phase, v1.MigrationPending))})
		}
	}
	return list
}

// unsynchronized returns the reason why a node does not follow the VMI. Without a pending change it is
// irrelevant.
func (f *facts) unsynchronized(pending bool) []change {
	c := f.condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse)
	if c == nil || !pending {
		return nil
	}
	return []change{{Effect: live, WaitsFor: "the node: " + cmp.Or(c.Message, c.Reason), Condition: string(c.Type), Reason: c.Reason}}
}
