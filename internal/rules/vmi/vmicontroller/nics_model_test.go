package vmicontroller

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vm/rollout"
)

// The model of a running guest's interface, which is added to its VM's template, removed, and moved to another network:
// the VM, the VMI, two launcher pods, QEMU, and all their writers. virt-controller's and virt-handler's own functions
// decide, on objects that are made of the model's state.

// network is one of two, or none.
type network uint8

const (
	nowhere network = iota
	red
	blue
)

func (n network) String() string { return [...]string{"", "red", "blue"}[n] }

// wish is the interface in a specification: nowhere if it is not listed.
type wish struct {
	on     network
	absent bool
}

// wanted reports whether the guest should have the interface.
func (w wish) wanted() bool { return w.on != nowhere && !w.absent }

// required is the condition MigrationRequired.
type required uint8

const (
	notRequired required = iota
	// pendingNow is False, and pendingLong has been for eleven seconds.
	pendingNow
	pendingLong
	isRequired
)

// vmiState has the VMI's fields about the interface.
type vmiState struct {
	spec wish
	// reported means that status.interfaces shows it in the guest.
	reported  bool
	condition required
	// migrates means that its migration state is under way, moved that the guest has moved an odd number of times.
	migrates, moved bool
}

// podState has a launcher pod's fields about the interface.
type podState struct {
	// The pod's network at its creation (made), in its annotation (asked), in its network-status (said), and in its
	// namespace (in).
	made, asked, said, in network
}

// handlerState is virt-handler's memory.
type handlerState struct {
	// asked means that it has asked the guest to release the NIC; asking again later changes nothing. plugged means
	// that it has plugged or reconnected the NIC within the pause after that.
	asked, plugged      bool
	gone, loose, unsure bool
}

// phase is the phase of a migration.
type phase uint8

const (
	atRest phase = iota
	// attaching: its pod is being made. arriving: the target's QEMU waits for the guest.
	attaching
	arriving
)

type nicState struct {
	template wish
	// vmi is the API server's, seen virt-controller's cache, and known virt-handler's.
	vmi, seen, known vmiState
	pod, target      podState
	// nic means that QEMU has it, on the connected network. releases means that the guest was asked to release it.
	// targetNIC is the target QEMU's.
	nic, releases, targetNIC bool
	on                       network
	handler                  handlerState
	migration                phase
	// rests means that a migration has just ended: package workloadupdate makes no other one for a while.
	rests bool
	// migrations counts those since the last change of the specification, without the failed ones.
	migrations int8
	// The remaining steps of users and failures.
	changes, deaths, breaks uint8
}

// nicStep is a step of the model: its name, the resulting state, and whether it need not happen.
type nicStep struct {
	name     string
	to       nicState
	disturbs bool
}

// nicScenario has the environment of Drydock.
type nicScenario struct {
	name string
	// attacher means that a controller attaches interfaces to running pods. blind means that Multus does not attach
	// those of new pods. keeps means that the guest never releases an interface.
	attacher, blind, keeps  bool
	changes, deaths, breaks uint8
	// late has caches lag behind.
	late bool
	// decided caches virt-controller's decisions about equal states.
	decided map[nicView]nicDecision
}

// nicView is virt-controller's view, and nicDecision its decision.
type nicView struct {
	vmi vmiState
	pod podState
}

type nicDecision struct {
	asks      network
	changes   bool
	condition required
	migrates  bool
}

const nicName = "nic"

// specOf returns a VMI's specification with the wished interface.
func specOf(w wish) v1.VirtualMachineInstanceSpec {
	spec := v1.VirtualMachineInstanceSpec{Networks: []v1.Network{*v1.DefaultPodNetwork()}}
	spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}}
	if w.on == nowhere {
		return spec
	}
	iface := v1.Interface{Name: nicName, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}
	if w.absent {
		iface.State = v1.InterfaceStateAbsent
	}
	spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, iface)
	spec.Networks = append(spec.Networks, v1.Network{Name: nicName, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: w.on.String()}}})
	return spec
}

// wishOf reads the interface in a specification.
func wishOf(spec *v1.VirtualMachineInstanceSpec) wish {
	var w wish
	for i := range spec.Networks {
		if n := &spec.Networks[i]; n.Name == nicName {
			w.on = networkNamed(n.Multus.NetworkName)
		}
	}
	for i := range spec.Domain.Devices.Interfaces {
		if iface := &spec.Domain.Devices.Interfaces[i]; iface.Name == nicName {
			w.absent = iface.State == v1.InterfaceStateAbsent
		}
	}
	return w
}

func networkNamed(name string) network {
	for _, n := range []network{red, blue} {
		if n.String() == name {
			return n
		}
	}
	return nowhere
}

// object is the running VMI, in the pod of podObject.
func (v vmiState) object() *v1.VirtualMachineInstance {
	vmi := newVMI(inPhase(v1.Running, time.Hour))
	vmi.Spec = specOf(v.spec)
	vmi.Status.NodeName = "node"
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
	}
	if v.reported {
		vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: nicName, InfoSource: nichotplug.InfoSourceDomain}}
	}
	if v.migrates {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourceNode: "node", TargetNode: "other"}
	}
	if v.condition != notRequired {
		c := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)}
		switch v.condition {
		case pendingLong:
			c.LastTransitionTime = metav1.NewTime(now.Add(-11 * time.Second))
		case isRequired:
			c.Status = corev1.ConditionTrue
		case notRequired, pendingNow:
		}
		vmi.Status.Conditions = append(vmi.Status.Conditions, c)
	}
	return vmi
}

// conditionOf reads the condition.
func conditionOf(vmi *v1.VirtualMachineInstance) required {
	switch c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired); {
	case c == nil:
		return notRequired
	case c.Status == corev1.ConditionTrue:
		return isRequired
	case now.Sub(c.LastTransitionTime.Time) < 11*time.Second:
		return pendingNow
	}
	return pendingLong
}

// object is the guest's pod.
func (p podState) object() *corev1.Pod {
	pod := newPod(func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Spec.NodeName, pod.Annotations = corev1.PodRunning, "node", map[string]string{}
	})
	for key, n := range map[string]network{launcherpod.MadeWithAnnotation: p.made, launcherpod.NetworksAnnotation: p.asked} {
		if n != nowhere {
			vmi := vmiState{spec: wish{on: n}}.object()
			pod.Annotations[key] = launcherpod.Encode(launcherpod.Attachments(vmi))
		}
	}
	if p.said != nowhere {
		pod.Annotations[nichotplug.StatusAnnotation] = fmt.Sprintf(`[{"name":"ns/%s","interface":%q}]`, p.said, layout.SecondaryInterface(nicName))
	}
	return pod
}

// askedBy reads a pod's planned annotation.
func askedBy(annotation string) network {
	var list []launcherpod.Attachment
	if annotation == "" || json.Unmarshal([]byte(annotation), &list) != nil || len(list) == 0 {
		return nowhere
	}
	return networkNamed(list[0].Name)
}

// decide calls virt-controller's decision about a VMI.
func (sc *nicScenario) decide(v nicView) nicDecision {
	if d, known := sc.decided[v]; known {
		return d
	}
	vmi, pod := v.vmi.object(), v.pod.object()
	if migration.InFlight(vmi) {
		// TestWhatThePodOfAGuestThatRunsLacks shows that nothing is decided then.
		return nicDecision{condition: v.vmi.condition}
	}
	plan := Decide(Observed{VMI: vmi, Pod: pod, PodAsked: true, Node: answering, NodeAsked: true, Now: now})
	d := nicDecision{condition: conditionOf(plan.VMI), changes: plan.Networks != nil}
	if d.changes {
		d.asks = askedBy(*plan.Networks)
	}
	d.migrates = len(workloadupdate.Decide(workloadupdate.Cluster{
		VMIs: []*v1.VirtualMachineInstance{vmi}, Now: now, MostMigrations: 5,
		Strategy: v1.KubeVirtWorkloadUpdateStrategy{WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}},
	}).Migrate) > 0
	sc.decided[v] = d
	return d
}

// carried is the VMI's specification after virt-controller has carried its template into it.
func carried(vmi vmiState, template wish) wish {
	object, spec := vmi.object(), specOf(template)
	rollout.Carry(v1.VMRolloutStrategyLiveUpdate, object, &spec)
	return wishOf(&object.Spec)
}
