package guestagent

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guestinfo"
	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// ErrNotConnected is for users' queries while the port is closed.
var ErrNotConnected = errors.New("VMI does not have guest agent connected")

// queryStatus queries the agent for the VMI's status, or only the addresses if last has the rest.
func (a *Agent) queryStatus(ctx context.Context, last *vmihandler.Agent) (*vmihandler.Agent, error) {
	answer := &vmihandler.Agent{}
	err := a.Talk(ctx, func(ctx context.Context, c *agent.Client) error {
		if last != nil {
			*answer = *last
		} else if err := querySystem(ctx, c, answer); err != nil {
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

func querySystem(ctx context.Context, c *agent.Client, answer *vmihandler.Agent) error {
	system, err := c.OSInfo(ctx)
	if err != nil && !agent.Unsupported(err) {
		return err
	}
	os := guestinfo.OS(system)
	for _, text := range []*string{
		&os.Name, &os.KernelRelease, &os.Version, &os.PrettyName, &os.VersionID, &os.KernelVersion, &os.Machine, &os.ID,
	} {
		*text = truncate(*text)
	}
	answer.OS = os
	info, err := c.Info(ctx)
	switch {
	case agent.Unsupported(err):
		answer.Commands = &vmihandler.Commands{Missing: []string{"guest-info"}}
	case err != nil:
		return err
	default:
		var enabled []string
		for _, c := range info.Commands {
			if c.Enabled {
				enabled = append(enabled, c.Name)
			}
		}
		answer.Commands = vmihandler.CommandsOf(enabled)
	}
	return nil
}

// maxForUsers bounds a guest's conversations for users: a silent agent must leave the node's places to other guests.
const maxForUsers = 2

func (a *Agent) talkForUser(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	if !a.Observe().Connected {
		return ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case a.users <- struct{}{}:
		defer func() { <-a.users }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return apierrors.NewTooManyRequests("the guest agent of this VMI has not answered earlier requests yet; try again when it has", 1)
	}
	return a.Talk(ctx, talk)
}

// UserList returns the guest's logged-in users.
func (a *Agent) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	var users []agent.User
	err := a.talkForUser(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		users, err = c.Users(ctx)
		return err
	})
	return guestinfo.UserList(users), err
}

// FilesystemList returns the mounted file systems.
func (a *Agent) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	var filesystems []agent.Filesystem
	err := a.talkForUser(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		filesystems, err = c.Filesystems(ctx)
		return err
	})
	return guestinfo.FilesystemList(filesystems), err
}

// GuestOSInfo returns everything that the agent supports.
func (a *Agent) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	var f guestinfo.Facts
	err := a.talkForUser(ctx, func(ctx context.Context, c *agent.Client) error {
		return errors.Join(
			queryInto(ctx, c.Info, &f.Info),
			queryInto(ctx, c.OSInfo, &f.OS),
			queryInto(ctx, c.HostName, &f.HostName),
			queryInto(ctx, c.Timezone, &f.Timezone),
			queryInto(ctx, c.Users, &f.Users),
			queryInto(ctx, c.Filesystems, &f.Filesystems),
			queryInto(ctx, c.FreezeStatus, &f.FreezeStatus),
		)
	})
	return guestinfo.AgentInfo(f), err
}

// UsedCPUs returns the number of CPUs in use by the guest's system.
func (a *Agent) UsedCPUs(ctx context.Context) (int, error) {
	if !a.Observe().Connected {
		return 0, ErrNotConnected
	}
	var cpus []agent.VCPU
	err := a.Talk(ctx, func(ctx context.Context, c *agent.Client) (err error) {
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

// Reboot asks the agent to reboot the guest. done is false if there is no agent or it can't.
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

// An unsupported command is no error.
func queryInto[T any](ctx context.Context, question func(context.Context) (T, error), into *T) error {
	heard, err := question(ctx)
	if agent.Unsupported(err) {
		return nil
	}
	*into = heard
	return err
}
