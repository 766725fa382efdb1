package driver

import (
	"context"
	"errors"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guestinfo"
	"drydock.dev/drydock/internal/qemu/agent"
)

// ask has a conversation with the agent on behalf of a user.
func (m *Machine) ask(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	m.d.mu.Lock()
	connected := m.guest.agentOpen
	m.d.mu.Unlock()
	if !connected {
		return m.conflict("VMI does not have guest agent connected")
	}
	return m.guest.withAgent(ctx, talk)
}

// UserList returns who is logged in to the guest.
func (m *Machine) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	var users []agent.User
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) (err error) {
		users, err = a.Users(ctx)
		return err
	})
	return guestinfo.UserList(users), err
}

// FilesystemList returns which file systems the guest has mounted.
func (m *Machine) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	var filesystems []agent.Filesystem
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) (err error) {
		filesystems, err = a.Filesystems(ctx)
		return err
	})
	return guestinfo.FilesystemList(filesystems), err
}

// GuestOSInfo returns all that the guest agent knows of the guest. What this
// agent does not report is left out.
func (m *Machine) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	var f guestinfo.Facts
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) error {
		return errors.Join(
			answer(ctx, a.Info, &f.Info),
			answer(ctx, a.OSInfo, &f.OS),
			answer(ctx, a.HostName, &f.HostName),
			answer(ctx, a.Timezone, &f.Timezone),
			answer(ctx, a.Users, &f.Users),
			answer(ctx, a.Filesystems, &f.Filesystems),
			answer(ctx, a.FreezeStatus, &f.FreezeStatus),
		)
	})
	return guestinfo.AgentInfo(f), err
}

// answer asks one question; that the agent does not understand it is no error.
func answer[T any](ctx context.Context, question func(context.Context) (T, error), into *T) error {
	told, err := question(ctx)
	if agent.Unsupported(err) {
		return nil
	}
	*into = told
	return err
}
