// Package guestinfo converts the answers of a guest agent into API types.
//
// It is pure. The guest may be hostile: the package must pass its text on and trust none of it.
package guestinfo

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/agent"
)

// Facts are the agent's answers, zero if unsupported.
type Facts struct {
	Info         agent.Info
	OS           agent.OSInfo
	HostName     string
	Timezone     agent.Timezone
	Users        []agent.User
	Filesystems  []agent.Filesystem
	FreezeStatus string
}

// AgentInfo returns the subresource guestosinfo.
func AgentInfo(f Facts) v1.VirtualMachineInstanceGuestAgentInfo {
	info := v1.VirtualMachineInstanceGuestAgentInfo{
		GAVersion: f.Info.Version,
		Hostname:  f.HostName,
		OS:        OS(f.OS),
		Timezone:  timezone(f.Timezone),
		UserList:  users(f.Users),
		FSInfo:    v1.VirtualMachineInstanceFileSystemInfo{Filesystems: filesystems(f.Filesystems)},
	}
	// The API has only this value; the field is empty for a thawed guest.
	if f.FreezeStatus == "frozen" {
		info.FSFreezeStatus = f.FreezeStatus
	}
	for _, command := range f.Info.Commands {
		info.SupportedCommands = append(info.SupportedCommands, v1.GuestAgentCommandInfo{Name: command.Name, Enabled: command.Enabled})
	}
	return info
}

// OS returns the operating system, also for the VMI's status.
func OS(i agent.OSInfo) v1.VirtualMachineInstanceGuestOSInfo {
	return v1.VirtualMachineInstanceGuestOSInfo{
		Name: i.Name, KernelRelease: i.KernelRelease, Version: i.Version, PrettyName: i.PrettyName,
		VersionID: i.VersionID, KernelVersion: i.KernelVersion, Machine: i.Machine, ID: i.ID,
	}
}

// UserList returns the subresource userlist.
func UserList(list []agent.User) v1.VirtualMachineInstanceGuestOSUserList {
	return v1.VirtualMachineInstanceGuestOSUserList{Items: users(list)}
}

// FilesystemList returns the subresource filesystemlist.
func FilesystemList(list []agent.Filesystem) v1.VirtualMachineInstanceFileSystemList {
	return v1.VirtualMachineInstanceFileSystemList{Items: filesystems(list)}
}

// The list is never nil: clients of the API read a list.
func users(list []agent.User) []v1.VirtualMachineInstanceGuestOSUser {
	out := make([]v1.VirtualMachineInstanceGuestOSUser, 0, len(list))
	for _, u := range list {
		out = append(out, v1.VirtualMachineInstanceGuestOSUser{UserName: u.Name, Domain: u.Domain, LoginTime: u.LoginTime})
	}
	return out
}

// The list is never nil: clients of the API read a list.
func filesystems(list []agent.Filesystem) []v1.VirtualMachineInstanceFileSystem {
	out := make([]v1.VirtualMachineInstanceFileSystem, 0, len(list))
	for _, f := range list {
		filesystem := v1.VirtualMachineInstanceFileSystem{
			DiskName: f.Name, MountPoint: f.Mountpoint, FileSystemType: f.Type,
			UsedBytes: int(f.UsedBytes), TotalBytes: int(f.TotalBytes),
		}
		for _, d := range f.Disks {
			filesystem.Disk = append(filesystem.Disk, v1.VirtualMachineInstanceFileSystemDisk{Serial: d.Serial, BusType: d.BusType})
		}
		out = append(out, filesystem)
	}
	return out
}

// timezone returns, for example, "CEST, 7200": the offset is in seconds east of UTC.
func timezone(t agent.Timezone) string {
	if t == (agent.Timezone{}) {
		return ""
	}
	return fmt.Sprintf("%s, %d", t.Zone, t.Offset)
}
