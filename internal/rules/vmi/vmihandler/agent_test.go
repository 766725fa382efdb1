package vmihandler

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// TestWhatAnAgentLacks: the condition must name the commands that this VMI needs, and no other; it must stay until an
// agent lists its commands.
func TestWhatAnAgentLacks(t *testing.T) {
	byAgent := v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{}},
	}}
	without := func(missing ...string) *Commands {
		return CommandsOf(slices.DeleteFunc(slices.Clone(agentCommands), func(c string) bool { return slices.Contains(missing, c) }))
	}
	const sentence = "The guest agent lacks, or has been told to refuse: "
	for name, test := range map[string]struct {
		commands    *Commands
		credentials []v1.AccessCredential
		said, want  string
	}{
		"it has all":      {without(), nil, "", ""},
		"it has all now":  {without(), nil, "before", ""},
		"it has not said": {nil, nil, "before", "before"},
		"it lacks two":    {without("guest-get-users", "guest-shutdown"), nil, "", sentence + "guest-shutdown, guest-get-users."},
		"it can't set keys, and nobody wants it to": {without(setKeys, setPassword), nil, "", ""},
		"it can't set keys, and is to":              {without(setKeys, setPassword), []v1.AccessCredential{byAgent}, "", sentence + setKeys + "."},
	} {
		vmi, f := instance(), facts()
		vmi.Status.Phase = v1.Running
		vmi.Spec.AccessCredentials = test.credentials
		if test.said != "" {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: "AgentVersionNotSupported", Status: corev1.ConditionTrue, Message: test.said}}
		}
		f.Guest.Agent = &Agent{Commands: test.commands}
		got := ""
		if c := condition.Find(Status(vmi, f).Conditions, v1.VirtualMachineInstanceUnsupportedAgent); c != nil && c.Status == corev1.ConditionTrue {
			got = c.Message
		}
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		f.Guest.Agent = nil
		if c := condition.Find(Status(vmi, f).Conditions, v1.VirtualMachineInstanceUnsupportedAgent); c != nil {
			t.Errorf("%s: of an agent that is gone it says %+v", name, c)
		}
	}
}
