package vmlifecycle

import (
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Conditions whose messages are columns of `kubectl get vm -o wide`, which can read
// nothing but the VM itself. They are there while the guest runs, and are written
// together with what is written then anyway: see decision 190.
const (
	ConditionNode    v1.VirtualMachineConditionType = "drydock.dev/Node"
	ConditionAddress v1.VirtualMachineConditionType = "drydock.dev/Address"
	ConditionGuestOS v1.VirtualMachineConditionType = "drydock.dev/GuestOS"
)

// maxGuestOS bounds what a guest says of itself; it is one column of a table.
const maxGuestOS = 64

// whereabouts are the conditions that say where a running guest is, and what.
func (d *decision) whereabouts() []v1.VirtualMachineCondition {
	if d.vmi == nil || d.stopping() || d.vmi.Status.Phase != v1.Running {
		return nil
	}
	status := d.vmi.Status
	address := ""
	if len(status.Interfaces) > 0 {
		address = status.Interfaces[0].IP
	}
	var out []v1.VirtualMachineCondition
	for _, fact := range []struct {
		kind            v1.VirtualMachineConditionType
		reason, message string
	}{
		{ConditionNode, "GuestRuns", status.NodeName},
		{ConditionAddress, "AddressKnown", address},
		{ConditionGuestOS, "AgentReports", oneLine(status.GuestOSInfo.PrettyName, maxGuestOS)},
	} {
		if fact.message != "" {
			out = append(out, v1.VirtualMachineCondition{
				Type: fact.kind, Status: corev1.ConditionTrue, Reason: fact.reason, Message: fact.message,
			})
		}
	}
	return out
}

// oneLine is a text of the guest's without what would disturb a table, cut to a
// number of characters.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit-1]) + "…"
	}
	return strings.TrimSpace(text)
}
