package vmcontroller

import (
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Conditions whose messages are columns of `kubectl get vm -o wide`, which can only read the VM itself. They need no
// separate write, as annotations would, and the API module's types keep them, unlike a field of Drydock's own.
const (
	ConditionNode    v1.VirtualMachineConditionType = "drydock.dev/Node"
	ConditionAddress v1.VirtualMachineConditionType = "drydock.dev/Address"
	ConditionGuestOS v1.VirtualMachineConditionType = "drydock.dev/GuestOS"
)

const maxGuestOS = 64 // characters: it is one column of a table

func (d *decision) guestConditions() []v1.VirtualMachineCondition {
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

// oneLine removes unprintable characters from a guest's text.
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
