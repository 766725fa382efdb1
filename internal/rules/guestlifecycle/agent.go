package guestlifecycle

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/accesscredential"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Agent is what the guest agent told.
type Agent struct {
	OS         v1.VirtualMachineInstanceGuestOSInfo
	Interfaces []v1.VirtualMachineInstanceNetworkInterface
	// Commands tells which commands it lacks; nil while it has not said.
	Commands *Commands
}

// Commands tells which commands a guest agent lacks.
type Commands struct {
	// Missing are those of agentCommands, in their order.
	Missing []string
}

// Commands of the guest agent that only some guests need.
const (
	setKeys     = "guest-ssh-add-authorized-keys"
	setPassword = "guest-set-user-password"
)

// agentCommands are the commands that Drydock sends to the guest agent for what the API reports of a guest, and for
// what its spec asks for.
var agentCommands = []string{
	"guest-ping", "guest-info", "guest-shutdown", "guest-get-osinfo", "guest-network-get-interfaces", "guest-get-fsinfo",
	"guest-get-host-name", "guest-get-users", "guest-get-timezone", setKeys, setPassword,
}

// CommandsOf returns what is to be known of an agent that has the commands enabled.
func CommandsOf(enabled []string) *Commands {
	return &Commands{Missing: slices.DeleteFunc(slices.Clone(agentCommands), func(c string) bool { return slices.Contains(enabled, c) })}
}

// lacking says which commands the agent lacks that this VMI needs, "" for none.
func (c *Commands) lacking(spec *v1.VirtualMachineInstanceSpec) string {
	missing := slices.DeleteFunc(slices.Clone(c.Missing), func(command string) bool {
		return command == setKeys && !accesscredential.KeysByAgent(spec) || command == setPassword && !accesscredential.PasswordsByAgent(spec)
	})
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("The guest agent lacks, or has been told to refuse: %s. Install a newer qemu-guest-agent in the guest, or allow them in its configuration.",
		strings.Join(missing, ", "))
}

// AgentOf reads back from a status what the agent told when it was written; nil
// when none was connected. What it said of its commands stands in the condition until it says it again.
func AgentOf(status v1.VirtualMachineInstanceStatus) *Agent {
	if !condition.IsTrue(status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return nil
	}
	agent := &Agent{OS: status.GuestOSInfo}
	for _, i := range status.Interfaces {
		if strings.Contains(i.InfoSource, infoAgent) {
			agent.Interfaces = append(agent.Interfaces, v1.VirtualMachineInstanceNetworkInterface{
				InterfaceName: i.InterfaceName, MAC: i.MAC, IP: i.IP, IPs: i.IPs,
			})
		}
	}
	return agent
}

// agentLacks is what a status says of the commands that the agent of a VMI lacks.
func agentLacks(vmi *v1.VirtualMachineInstance, agent *Agent) vmistatus.Fact[string] {
	if agent == nil || agent.Commands == nil {
		return vmistatus.Fact[string]{}
	}
	return vmistatus.Known(agent.Commands.lacking(&vmi.Spec))
}
