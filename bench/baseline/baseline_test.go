package baseline

import (
	"slices"
	"testing"

	"github.com/prometheus/procfs"
)

func TestArgumentsFindTheirFilesElsewhere(t *testing.T) {
	args := []string{
		"-chardev", "socket,id=s,path=/var/run/kubevirt/serial0.sock,server=on",
		"-blockdev", `{"filename":"/var/run/kubevirt-volumes/root/disk/guest.qcow2"}`,
		"-blockdev", `{"filename":"/var/run/kubevirt-ephemeral-disks/root.qcow2"}`,
		"-blockdev", `{"filename":"/var/run/kubevirt-volumes/root/disk.img"}`,
		"-netdev", `{"ifname":"tap0","type":"tap"}`,
		"-device", "virtio-net",
		"-chardev", "socket,id=launcher0,fd=3",
		"-mon", "chardev=launcher0,mode=control",
	}
	if !onClaim(args) || onClaim(args[:6]) {
		t.Error("a disk in a claim is not told from another one")
	}
	got := ownPaths(args, "/d", "/s")
	want := []string{
		"-chardev", "socket,id=s,path=/s/serial0.sock,server=on",
		"-blockdev", `{"filename":"/d/guest.qcow2"}`,
		"-blockdev", `{"filename":"/d/root.qcow2"}`,
		"-blockdev", `{"filename":"/d/disk.img"}`,
		"-netdev", `{"type":"user","id":"host-default"}`,
		"-device", "virtio-net",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheCgroupOfTheCPUsIsFound(t *testing.T) {
	const split = "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"31 25 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n" +
		"32 25 0:28 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n"
	const unified = "30 25 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct {
		memberships  []procfs.Cgroup
		mounts, want string
	}{
		"one hierarchy for each controller": {
			[]procfs.Cgroup{
				{HierarchyID: 4, Controllers: []string{"memory"}, Path: "/other"},
				{HierarchyID: 1, Controllers: []string{"cpu", "cpuacct"}, Path: "/kubepods/pod1/c"},
				{Path: "/other"},
			}, split, "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c",
		},
		"one for all": {[]procfs.Cgroup{{Path: "/kubepods/pod1/c"}}, unified, "/sys/fs/cgroup/kubepods/pod1/c"},
	} {
		if got := cpuCgroup(c.memberships, c.mounts); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
