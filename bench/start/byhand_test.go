package start

import (
	"slices"
	"testing"
)

func TestArgumentsFindTheirFilesElsewhere(t *testing.T) {
	got := ownPaths([]string{
		"-chardev", "socket,id=s,path=/var/run/kubevirt/serial0.sock,server=on",
		"-blockdev", `{"filename":"/var/run/kubevirt-volumes/root/disk/guest.qcow2"}`,
		"-blockdev", `{"filename":"/var/run/kubevirt-ephemeral-disks/root.qcow2"}`,
		"-netdev", `{"ifname":"tap0","type":"tap"}`,
		"-device", "virtio-net",
		"-chardev", "socket,id=launcher0,fd=3",
		"-mon", "chardev=launcher0,mode=control",
	}, "/d")
	want := []string{
		"-chardev", "socket,id=s,path=/d/serial0.sock,server=on",
		"-blockdev", `{"filename":"/d/guest.qcow2"}`,
		"-blockdev", `{"filename":"/d/root.qcow2"}`,
		"-netdev", `{"type":"user","id":"host-default"}`,
		"-device", "virtio-net",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
