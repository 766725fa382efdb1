//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// lans are the embedded cluster's networks that all nodes share.
var lans = []string{"lan1", "lan2", "lan3", "lan4"}

// changeNetworks adds four interfaces to a running guest and moves one to another network, in one change. Stage delays
// it, and one migration applies it. Meanwhile one of the four is removed, and the moved one returns to its network: the
// next migration applies that.
func (n *nicChange) changeNetworks() {
	n.t.Helper()
	began := time.Now()
	for _, lan := range lans {
		newAttachment(n.t, n.ns, lan, map[string]any{"cniVersion": "1.0.0", "name": lan, "type": "bridge", "bridge": lan})
	}
	n.stage(func(spec *v1.VirtualMachineInstanceSpec) {
		n.put(spec, "lan1")
		for _, lan := range lans {
			spec.Networks = append(spec.Networks, v1.Network{Name: lan, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: lan}}})
			spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
				v1.Interface{Name: lan, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
		}
	}, append(lans, n.attachment)...)
	awaitVMI(n.t, n.ns, n.name, "a migration", migration.InFlight)
	changeTemplate(n.t, n.ns, n.name, func(spec *v1.VirtualMachineInstanceSpec) {
		n.put(spec, n.attachment)
		spec.Domain.Devices.Interfaces[len(spec.Domain.Devices.Interfaces)-1].State = v1.InterfaceStateAbsent
	})
	home := n.node
	awaitVMI(n.t, n.ns, n.name, "a pod on the other network", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName != home && n.podIsOn(vmi, "lan1", lans)
	})
	n.t.Logf("another network and four interfaces came by a migration in %v", time.Since(began))
	awaitVMI(n.t, n.ns, n.name, "a pod on the first network", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName == home && n.podIsOn(vmi, n.attachment, lans[:3]) && n.lansInGuest(vmi) == 3 &&
			condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) == nil
	})
	if n.migrations += 2; n.count() != n.migrations {
		n.t.Errorf("the VM has had %d migrations, want %d", n.count(), n.migrations)
	}
	g := login(n.t, n.ns, n.name)
	n.stays(g, 4)
	g.sees("an answer over the cable", "ping -c 1 -W 2 192.0.2.1 >/dev/null && echo yes", "yes")
	n.cards = g.run(listCards)
	n.t.Logf("all of it was settled in %v", time.Since(began))
}

func (n *nicChange) put(spec *v1.VirtualMachineInstanceSpec, network string) {
	for i := range spec.Networks {
		if spec.Networks[i].Name == n.attachment {
			spec.Networks[i].Multus.NetworkName = network
		}
	}
}

// stage makes a change that waits for a restart until the strategy is LiveUpdate again.
func (n *nicChange) stage(change func(*v1.VirtualMachineInstanceSpec), names ...string) {
	n.t.Helper()
	const liveUpdate = `{"spec":{"configuration":{"vmRolloutStrategy":"LiveUpdate"}}}`
	configure(n.t, `{"spec":{"configuration":{"vmRolloutStrategy":"Stage"}}}`, liveUpdate)
	changeTemplate(n.t, n.ns, n.name, change)
	awaitVM(n.t, n.ns, n.name, "RestartRequired", func(vm *v1.VirtualMachine) bool {
		c := condition.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired)
		for _, name := range names {
			if c == nil || !strings.Contains(c.Message, "spec.template.spec.networks["+name+"]") {
				return false
			}
		}
		return true
	})
	if says := do(n.t, n.ns, "pending", n.name); strings.Count(says, "by restart") != 2*len(lans)+1 || strings.Contains(says, "by migration") {
		n.t.Errorf("virtctl says\n%s", says)
	}
	vmi := awaitRunning(n.t, n.ns, n.name)
	if len(vmi.Spec.Networks) != 3 || condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) != nil {
		n.t.Errorf("staged, the VMI has %+v, and says %+v", vmi.Spec.Networks, vmi.Status.Conditions)
	}
	configureFurther(n.t, liveUpdate)
}

func (n *nicChange) lansInGuest(vmi *v1.VirtualMachineInstance) int {
	there := 0
	for _, lan := range lans {
		if nichotplug.InGuest(vmi, lan) {
			there++
		}
	}
	return there
}

// podIsOn reports whether the guest's pod is attached to exactly these networks, by its network-status.
func (n *nicChange) podIsOn(vmi *v1.VirtualMachineInstance, network string, lans []string) bool {
	pod := &corev1.Pod{}
	if err := cluster.client.Get(n.t.Context(), client.ObjectKey{Namespace: n.ns, Name: launcherpod.CurrentName(vmi)}, pod); err != nil {
		return false
	}
	has := nichotplug.ReadStatus(pod)
	for _, lan := range lans {
		if has[layout.SecondaryInterface(lan)] != n.ns+"/"+lan {
			return false
		}
	}
	return has[layout.SecondaryInterface(n.attachment)] == n.ns+"/"+network && len(has) == len(lans)+2
}

// The guest must have the same interfaces in the same places. One is then connected by a network binding, whose
// plugin must have been called.
func (n *nicChange) restarts() {
	n.t.Helper()
	newAttachment(n.t, n.ns, "plugin", map[string]any{"cniVersion": "1.0.0", "name": "plugin", "type": "bridge", "bridge": "lan4"})
	configure(n.t, `{"spec":{"configuration":{"network":{"binding":{"managed":{"domainAttachmentType":"managedTap","networkAttachmentDefinition":"plugin","migration":{}}}}}}}`,
		`{"spec":{"configuration":{"network":null}}}`)
	eventually(n.t, "the binding to be accepted", func(ctx context.Context) error {
		vm := &v1.VirtualMachine{}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: n.ns, Name: n.name}, vm); err != nil {
			return err
		}
		before := vm.DeepCopy()
		for i := range vm.Spec.Template.Spec.Domain.Devices.Interfaces {
			if iface := &vm.Spec.Template.Spec.Domain.Devices.Interfaces[i]; iface.Name == "lan2" {
				iface.Bridge, iface.Binding = nil, &v1.PluginBinding{Name: "managed"}
			}
		}
		return cluster.client.Patch(ctx, vm, client.MergeFrom(before))
	})
	restartAndAwait(n.t, n.ns, n.name)
	if now := login(n.t, n.ns, n.name).run(listCards); now != n.cards {
		n.t.Errorf("after the restart the guest has\n%s\nand had\n%s", now, n.cards)
	}
	vmi := awaitVMI(n.t, n.ns, n.name, "the interface of a binding, and LiveMigratable", func(vmi *v1.VirtualMachineInstance) bool {
		return nichotplug.InGuest(vmi, "lan2") && condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	})
	if says := launcherPod(n.t, vmi).Annotations[nichotplug.StatusAnnotation]; !strings.Contains(says, fmt.Sprintf("%q", n.ns+"/plugin")) {
		n.t.Errorf("the plugin of a binding was not called: network-status %s", says)
	}
}
