package driver

import (
	"context"
	"errors"

	v1 "kubevirt.io/api/core/v1"

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

// UserList tells who is logged in to the guest.
func (m *Machine) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	list := v1.VirtualMachineInstanceGuestOSUserList{Items: []v1.VirtualMachineInstanceGuestOSUser{}}
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) error {
		users, err := a.Users(ctx)
		list.Items = append(list.Items, usersOf(users)...)
		return err
	})
	return list, err
}

// FilesystemList tells which file systems the guest has mounted.
func (m *Machine) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	list := v1.VirtualMachineInstanceFileSystemList{Items: []v1.VirtualMachineInstanceFileSystem{}}
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) error {
		filesystems, err := a.Filesystems(ctx)
		list.Items = append(list.Items, filesystemsOf(filesystems)...)
		return err
	})
	return list, err
}

// GuestOSInfo tells all that the guest agent knows of the guest. What this
// agent cannot tell is left out.
func (m *Machine) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	var told v1.VirtualMachineInstanceGuestAgentInfo
	err := m.ask(ctx, func(ctx context.Context, a *agent.Client) error {
		info, infoErr := a.Info(ctx)
		system, systemErr := a.OSInfo(ctx)
		host, hostErr := a.HostName(ctx)
		zone, zoneErr := a.Timezone(ctx)
		users, usersErr := a.Users(ctx)
		filesystems, filesystemsErr := a.Filesystems(ctx)
		told = v1.VirtualMachineInstanceGuestAgentInfo{
			GAVersion: info.Version, Hostname: host, OS: systemOf(system), Timezone: zone.Zone,
			UserList: usersOf(users),
			FSInfo:   v1.VirtualMachineInstanceFileSystemInfo{Filesystems: filesystemsOf(filesystems)},
		}
		for _, c := range info.Commands {
			told.SupportedCommands = append(told.SupportedCommands, v1.GuestAgentCommandInfo{Name: c.Name, Enabled: c.Enabled})
		}
		var errs []error
		for _, err := range []error{infoErr, systemErr, hostErr, zoneErr, usersErr, filesystemsErr} {
			if err != nil && !agent.Unsupported(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	return told, err
}

func usersOf(users []agent.User) []v1.VirtualMachineInstanceGuestOSUser {
	var list []v1.VirtualMachineInstanceGuestOSUser
	for _, u := range users {
		list = append(list, v1.VirtualMachineInstanceGuestOSUser{UserName: u.Name, Domain: u.Domain, LoginTime: u.LoginTime})
	}
	return list
}

func filesystemsOf(filesystems []agent.Filesystem) []v1.VirtualMachineInstanceFileSystem {
	var list []v1.VirtualMachineInstanceFileSystem
	for _, f := range filesystems {
		status := v1.VirtualMachineInstanceFileSystem{
			DiskName: f.Name, MountPoint: f.Mountpoint, FileSystemType: f.Type,
			UsedBytes: int(f.UsedBytes), TotalBytes: int(f.TotalBytes),
		}
		for _, d := range f.Disks {
			status.Disk = append(status.Disk, v1.VirtualMachineInstanceFileSystemDisk{BusType: d.BusType, Serial: d.Serial})
		}
		list = append(list, status)
	}
	return list
}
