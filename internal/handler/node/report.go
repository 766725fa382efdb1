package node

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
)

// Values of the labels KVMLabel, TCGLabel and UEFILabel.
const (
	// Usable: the probe's guest ran with it.
	Usable = layout.KVMUsable
	// Unusable: the node has it, and the guest did not run.
	Unusable = "unusable"
	// Absent: the node does not have it.
	Absent = "absent"
	// Off: DRYDOCK_ACCEL asks for another accelerator, so it was not tried.
	Off = "off"
)

// Reasons of the events on a node.
const (
	ReasonKVMUnusable  = "KVMUnusable"
	ReasonKVMUsable    = "KVMUsable"
	ReasonTCGUnusable  = "EmulationUnusable"
	ReasonTCGUsable    = "EmulationUsable"
	ReasonUEFIUnusable = "UEFIUnusable"
	ReasonUEFIUsable   = "UEFIUsable"
	ReasonNoGuests     = "NoAccelerator"
	ReasonGuests       = "AcceleratorFound"
)

// capability is something that the probe tried.
type capability struct {
	label, state     string
	unusable, usable string
	// message says why it is unusable, and what follows.
	message string
}

// capabilities are all that the probe tried, each with what it came to.
func capabilities(probe nodeprobe.Result) []capability {
	kvm := capability{
		label: layout.KVMLabel, state: stateOf(probe.KVM), unusable: ReasonKVMUnusable, usable: ReasonKVMUsable,
		message: "KVM can't be used on this node: " + probe.KVM.Reason +
			". Guests are emulated if the KubeVirt object has developerConfiguration.useEmulation, and do not run here otherwise",
	}
	if probe.Requested == nodeprobe.TCG {
		kvm.state = Off
	}
	tcg := capability{
		label: layout.TCGLabel, state: stateOf(probe.TCG), unusable: ReasonTCGUnusable, usable: ReasonTCGUsable,
		message: "QEMU can't emulate a guest on this node: " + probe.TCG.Reason,
	}
	uefi := capability{label: layout.UEFILabel, state: Usable, unusable: ReasonUEFIUnusable, usable: ReasonUEFIUsable}
	used := probe.TCG
	if probe.Use() == nodeprobe.KVM {
		used = probe.KVM
	}
	switch {
	case probe.UEFIAbsent:
		uefi.state = Absent
	case probe.Use() == "" || used.UEFI != "":
		uefi.state = Unusable
		uefi.message = "guests with UEFI can't run on this node: " + used.UEFI
	}
	return []capability{kvm, tcg, uefi}
}

func stateOf(a nodeprobe.Accelerator) string {
	switch {
	case a.Usable:
		return Usable
	case a.Absent:
		return Absent
	}
	return Unusable
}

// Report is an event on the node.
type Report struct{ Type, Reason, Message string }

// Reports are the events about what a probe changes on a node with these labels.
// A node whose labels say the same already has none, so that a restart of
// virt-handler reports nothing twice.
func Reports(have map[string]string, probe nodeprobe.Result) []Report {
	if probe.Use() == "" {
		// The rest follows from it.
		if foundNothing(have) {
			return nil
		}
		message := "no guest can run on this node. Emulation: " + verdict(probe.TCG) + ". KVM: " + verdict(probe.KVM)
		if probe.Requested != "" {
			message += ". DRYDOCK_ACCEL allows " + probe.Requested + " only"
		}
		return []Report{{corev1.EventTypeWarning, ReasonNoGuests, message}}
	}
	var reports []Report
	if foundNothing(have) {
		reports = append(reports, Report{corev1.EventTypeNormal, ReasonGuests, "guests can run on this node with " + probe.Use()})
	}
	for _, c := range capabilities(probe) {
		switch was := have[c.label]; {
		case c.state == was:
		case c.state == Unusable:
			reports = append(reports, Report{corev1.EventTypeWarning, c.unusable, c.message})
		case c.state == Usable && was == Unusable:
			reports = append(reports, Report{corev1.EventTypeNormal, c.usable, "a guest ran on this node; it can be used again"})
		}
	}
	return reports
}

// foundNothing reports whether the labels are those of a probe that ran no guest. The false of kubevirt.io/schedulable
// alone does not say so: virt-controller writes it where virt-handler has left the node, beside what the probe had found.
func foundNothing(have map[string]string) bool {
	return have[v1.NodeSchedulable] == "false" && have[layout.KVMLabel] != Usable && have[layout.UEFILabel] != Usable
}

func verdict(a nodeprobe.Accelerator) string {
	if a.Usable {
		return Usable
	}
	return a.Reason
}
