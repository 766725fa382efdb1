package scale

import (
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// facts returns virt-handler's simulated observations of a VMI, and whether there is something to write: first the
// running guest, then its agent, its interfaces and its migration, and at last its shutdown.
func (a *agent) facts(instance *v1.VirtualMachineInstance, now time.Time) (vmihandler.Facts, bool) {
	f := vmihandler.Facts{Node: instance.Status.NodeName, PodReady: true, Now: now}
	agentCame := condition.IsTrue(instance.Status.Conditions, v1.VirtualMachineInstanceAgentConnected)
	switch phase := instance.Status.Phase; {
	case phase == v1.Running && instance.DeletionTimestamp != nil:
		f.Exit = &launch.Exit{Reason: launch.ReasonGuestShutdown}
	case phase == v1.Scheduled && instance.DeletionTimestamp == nil:
		f.Guest = a.guest(instance)
	case phase == v1.Running && vmistatus.ActiveMigration(&instance.Status) != nil:
		return migrating(instance, f)
	case phase == v1.Running && (!agentCame || len(a.secondary(instance)) > plugged(instance)):
		f.Guest = a.guest(instance)
		f.Guest.Agent = &vmihandler.Agent{OS: v1.VirtualMachineInstanceGuestOSInfo{
			Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 12 (bookworm)", ID: "debian",
			Version: "12", VersionID: "12", KernelRelease: "6.1.0-cloud-amd64", Machine: "x86_64",
		}}
	default:
		return f, false
	}
	return f, true
}

// migrating adds the next observation of the virt-handlers at source and target during a migration.
func migrating(instance *v1.VirtualMachineInstance, f vmihandler.Facts) (vmihandler.Facts, bool) {
	m := instance.Status.MigrationState
	target := vmistatus.TargetMigration{UID: m.MigrationUID, Address: "192.0.2.1:49152"}
	switch {
	case m.TargetNode == "":
		return f, false
	case m.TargetNodeAddress == "":
		f.Node, f.Target = m.TargetNode, &target
	case m.StartTimestamp == nil:
		f.Source = &vmistatus.SourceMigration{UID: m.MigrationUID, Begins: true}
	default:
		target.Runs = true
		f.Node, f.Target = m.TargetNode, &target
	}
	return f, true
}

func (a *agent) guest(instance *v1.VirtualMachineInstance) *vmihandler.Guest {
	return &vmihandler.Guest{
		RunState: "running", MachineType: "pc-q35-7.2",
		Interfaces: append([]vmihandler.Interface{{
			Name: "default", MAC: "02:00:00:00:00:01", PodInterface: "eth0", IPs: []string{"10.200.0.1"}, Queues: 1,
		}}, a.secondary(instance)...),
		Volumes: map[string]vmihandler.Volume{"root": {Size: 64 << 20}},
	}
}

func (a *agent) secondary(instance *v1.VirtualMachineInstance) []vmihandler.Interface {
	var list []vmihandler.Interface
	networks := a.networks.Load()
	for i := range instance.Spec.Networks {
		name := instance.Spec.Networks[i].Name
		link := layout.SecondaryInterface(name)
		if networks != nil && instance.Spec.Networks[i].Multus != nil && networks.has(instance, link) {
			list = append(list, vmihandler.Interface{Name: name, MAC: "02:00:00:00:00:02", PodInterface: link, Queues: 1, Multus: true})
		}
	}
	return list
}

func plugged(instance *v1.VirtualMachineInstance) int {
	count := 0
	for i := range instance.Status.Interfaces {
		if in := &instance.Status.Interfaces[i]; in.Name != "default" && strings.Contains(in.InfoSource, "domain") {
			count++
		}
	}
	return count
}
