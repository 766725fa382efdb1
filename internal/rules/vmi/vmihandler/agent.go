package vmihandler

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Agent is the guest agent's information.
type Agent struct {
	OS         v1.VirtualMachineInstanceGuestOSInfo
	Interfaces []v1.VirtualMachineInstanceNetworkInterface
	Commands   *Commands
}

// Commands are those that a guest agent lacks, in the order of agentCommands.
type Commands struct {
	Missing []string
}

const (
	setKeys     = "guest-ssh-add-authorized-keys"
	setPassword = "guest-set-user-password"
)

var agentCommands = []string{
	"guest-ping", "guest-info", "guest-shutdown", "guest-get-osinfo", "guest-network-get-interfaces", "guest-get-fsinfo",
	"guest-get-host-name", "guest-get-users", "guest-get-timezone", setKeys, setPassword,
}

// CommandsOf returns the Commands of an agent that has enabled these.
func CommandsOf(enabled []string) *Commands {
	return &Commands{Missing: slices.DeleteFunc(slices.Clone(agentCommands), func(c string) bool { return slices.Contains(enabled, c) })}
}

// AgentOf restores the agent's information from a status, nil if none was connected. The condition keeps the missing
// commands until the agent lists them again.
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

func agentLacks(vmi *v1.VirtualMachineInstance, agent *Agent) vmistatus.Fact[string] {
	if agent == nil || agent.Commands == nil {
		return vmistatus.Fact[string]{}
	}
	missing := slices.DeleteFunc(slices.Clone(agent.Commands.Missing), func(command string) bool {
		return command == setKeys && !accesscredential.KeysByAgent(&vmi.Spec) || command == setPassword && !accesscredential.PasswordsByAgent(&vmi.Spec)
	})
	if len(missing) == 0 {
		return vmistatus.Known("")
	}
	return vmistatus.Known(fmt.Sprintf("The guest agent lacks, or has been told to refuse: %s. Install a newer qemu-guest-agent in the guest, or allow them in its configuration.",
		strings.Join(missing, ", ")))
}
