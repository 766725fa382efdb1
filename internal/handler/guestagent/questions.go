package guestagent

import (
	"context"
	"errors"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guestinfo"
	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// ErrNotConnected answers a question of a user's while the port is closed.
var ErrNotConnected = errors.New("VMI does not have guest agent connected")

// ask asks what the VMI's status reports: all of it, or the guest's addresses if the rest is known from last.
func (a *Agent) ask(ctx context.Context, last *guestlifecycle.Agent) (*guestlifecycle.Agent, error) {
	answer := &guestlifecycle.Agent{}
	err := a.Talk(ctx, func(ctx context.Context, c *agent.Client) error {
		if last != nil {
			*answer = *last
		} else if err := askForSystem(ctx, c, answer); err != nil {
			return err
		}
		interfaces, err := c.Interfaces(ctx)
		if err != nil && !agent.Unsupported(err) {
			return err
		}
		answer.Interfaces = interfacesOf(interfaces)
		return nil
	})
	return answer, err
}

// askForSystem asks for the guest's system and for the agent's commands.
func askForSystem(ctx context.Context, c *agent.Client, answer *guestlifecycle.Agent) error {
	system, err := c.OSInfo(ctx)
	if err != nil && !agent.Unsupported(err) {
		return err
	}
	answer.OS = shortened(guestinfo.OS(system))
	info, err := c.Info(ctx)
	switch {
	case agent.Unsupported(err):
		answer.Commands = &guestlifecycle.Commands{Missing: []string{"guest-info"}}
	case err != nil:
		return err
	default:
		answer.Commands = guestlifecycle.CommandsOf(enabled(info))
	}
	return nil
}

// enabled are the commands that the agent has, and does not refuse.
func enabled(info agent.Info) []string {
	var names []string
	for _, c := range info.Commands {
		if c.Enabled {
			names = append(names, c.Name)
		}
	}
	return names
}

// forUser has a conversation with the agent on behalf of a user.
func (a *Agent) forUser(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	if !a.Observe().Connected {
		return ErrNotConnected
	}
	return a.Talk(ctx, talk)
}

// UserList returns who is logged in to the guest.
func (a *Agent) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	var users []agent.User
	err := a.forUser(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		users, err = c.Users(ctx)
		return err
	})
	return guestinfo.UserList(users), err
}

// FilesystemList returns which file systems the guest has mounted.
func (a *Agent) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	var filesystems []agent.Filesystem
	err := a.forUser(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		filesystems, err = c.Filesystems(ctx)
		return err
	})
	return guestinfo.FilesystemList(filesystems), err
}

// GuestOSInfo returns all that the guest agent knows of the guest. What this
// agent does not report is left out.
func (a *Agent) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	var f guestinfo.Facts
	err := a.forUser(ctx, func(ctx context.Context, c *agent.Client) error {
		return errors.Join(
			answer(ctx, c.Info, &f.Info),
			answer(ctx, c.OSInfo, &f.OS),
			answer(ctx, c.HostName, &f.HostName),
			answer(ctx, c.Timezone, &f.Timezone),
			answer(ctx, c.Users, &f.Users),
			answer(ctx, c.Filesystems, &f.Filesystems),
			answer(ctx, c.FreezeStatus, &f.FreezeStatus),
		)
	})
	return guestinfo.AgentInfo(f), err
}

// UsedCPUs returns how many CPUs the guest's system uses.
func (a *Agent) UsedCPUs(ctx context.Context) (int, error) {
	var cpus []agent.VCPU
	err := a.forUser(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		cpus, err = c.VCPUs(ctx)
		return err
	})
	used := 0
	for _, c := range cpus {
		if c.Online {
			used++
		}
	}
	return used, err
}

// Reboot asks the agent to reboot the guest. done is false when there is none that
// could, and somebody else has to.
func (a *Agent) Reboot(ctx context.Context) (done bool, err error) {
	if !a.Observe().Connected {
		return false, nil
	}
	err = a.Talk(ctx, func(ctx context.Context, c *agent.Client) error { return c.Shutdown(ctx, "reboot") })
	if agent.Unsupported(err) {
		return false, nil
	}
	return true, err
}

// answer asks one question; that the agent does not understand it is no error.
func answer[T any](ctx context.Context, question func(context.Context) (T, error), into *T) error {
	heard, err := question(ctx)
	if agent.Unsupported(err) {
		return nil
	}
	*into = heard
	return err
}
