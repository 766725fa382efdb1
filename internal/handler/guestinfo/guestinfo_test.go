package guestinfo

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/qemu/agent"
)

func text(t *testing.T, object any) string {
	t.Helper()
	data, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAgentInfo(t *testing.T) {
	got := text(t, AgentInfo(Facts{
		Info: agent.Info{Version: "7.2.0", Commands: []agent.Command{{Name: "guest-ping", Enabled: true}, {Name: "guest-exec"}}},
		OS: agent.OSInfo{
			ID: "debian", Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 12 (bookworm)", Version: "12 (bookworm)",
			VersionID: "12", KernelRelease: "6.1.0-18-cloud-amd64", KernelVersion: "#1 SMP", Machine: "x86_64",
		},
		HostName: "vm.example", Timezone: agent.Timezone{Zone: "CEST", Offset: 7200}, FreezeStatus: "frozen",
		Users: []agent.User{{Name: "root", Domain: "d", LoginTime: 1700000000.5}},
		Filesystems: []agent.Filesystem{{
			Name: "vda1", Mountpoint: "/", Type: "ext4", UsedBytes: 5, TotalBytes: 10,
			Disks: []agent.FSDisk{{BusType: "virtio", Serial: "s1", Device: "/dev/vda1"}},
		}},
	}))
	want := `{
 "guestAgentVersion": "7.2.0",
 "supportedCommands": [
  {
   "name": "guest-ping",
   "enabled": true
  },
  {
   "name": "guest-exec"
  }
 ],
 "hostname": "vm.example",
 "os": {
  "name": "Debian GNU/Linux",
  "kernelRelease": "6.1.0-18-cloud-amd64",
  "version": "12 (bookworm)",
  "prettyName": "Debian GNU/Linux 12 (bookworm)",
  "versionId": "12",
  "kernelVersion": "#1 SMP",
  "machine": "x86_64",
  "id": "debian"
 },
 "timezone": "CEST, 7200",
 "userList": [
  {
   "userName": "root",
   "domain": "d",
   "loginTime": 1700000000.5
  }
 ],
 "fsInfo": {
  "disks": [
   {
    "diskName": "vda1",
    "mountPoint": "/",
    "fileSystemType": "ext4",
    "usedBytes": 5,
    "totalBytes": 10,
    "disk": [
     {
      "serial": "s1",
      "busType": "virtio"
     }
    ]
   }
  ]
 },
 "fsFreezeStatus": "frozen"
}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnAgentThatKnowsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		object any
		want   string
	}{
		"guestosinfo":    {AgentInfo(Facts{FreezeStatus: "thawed"}), "{\n \"os\": {},\n \"fsInfo\": {\n  \"disks\": []\n }\n}"},
		"userlist":       {UserList(nil), "{\n \"metadata\": {},\n \"items\": []\n}"},
		"filesystemlist": {FilesystemList(nil), "{\n \"metadata\": {},\n \"items\": []\n}"},
	} {
		if diff := cmp.Diff(c.want, text(t, c.object)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
