package node

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
)

// Values of KVMLabel, TCGLabel and UEFILabel.
const (
	// Usable means that the probe's guest ran with it.
	Usable = layout.KVMUsable
	// Unusable means that the node has it and the probe's guest did not run.
	Unusable = "unusable"
	Absent   = "absent"
	// Off means that DRYDOCK_ACCEL requests another accelerator.
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

const probedAgain = ". The guest got too little of the CPUs, so the node is probed again"

type capability struct {
	label, state     string
	unusable, usable string
	message          string
}

func capabilities(probe nodeprobe.Result) []capability {
	kvm := capability{
		label: layout.KVMLabel, state: stateOf(probe.KVM), unusable: ReasonKVMUnusable, usable: ReasonKVMUsable,
		message: "KVM can't be used on this node: " + probe.KVM.Reason +
			". Guests are emulated if the KubeVirt object has developerConfiguration.useEmulation, and do not run here otherwise",
	}
	if probe.Starved {
		kvm.message += probedAgain
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

// Reports returns the events for changes. A restart reports nothing twice.
func Reports(have map[string]string, probe nodeprobe.Result) []Report {
	if probe.Use() == "" {
		// The other failures follow from this one.
		if foundNothing(have) {
			return nil
		}
		message := "no guest can run on this node. Emulation: " + verdict(probe.TCG) + ". KVM: " + verdict(probe.KVM)
		if probe.Requested != "" {
			message += ". DRYDOCK_ACCEL allows " + probe.Requested + " only"
		}
		if probe.Starved {
			message += probedAgain
		}
		return []Report{{corev1.EventTypeWarning, ReasonNoGuests, message}}
	}
	var reports []Report
	found := !foundNothing(have)
	if !found {
		reports = append(reports, Report{corev1.EventTypeNormal, ReasonGuests, "guests can run on this node with " + probe.Use()})
	}
	for _, c := range capabilities(probe) {
		switch was := have[c.label]; {
		case c.state == was && (found || was != Unusable):
		case c.state == Unusable:
			// Also if the label says so: the only event about a node without guests was of another reason.
			reports = append(reports, Report{corev1.EventTypeWarning, c.unusable, c.message})
		case c.state == Usable && was == Unusable:
			reports = append(reports, Report{corev1.EventTypeNormal, c.usable, "a guest ran on this node; it can be used again"})
		}
	}
	return reports
}

// foundNothing reports whether the labels are from a probe that ran no guest. virt-controller sets
// kubevirt.io/schedulable to false on a node that virt-handler has left, and leaves the probe's labels.
func foundNothing(have map[string]string) bool {
	return have[v1.NodeSchedulable] == "false" && have[layout.KVMLabel] != Usable && have[layout.UEFILabel] != Usable
}

func verdict(a nodeprobe.Accelerator) string {
	if a.Usable {
		return Usable
	}
	return a.Reason
}
