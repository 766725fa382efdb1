package podpath

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Under its name a file must be labeled, and one that can't be labeled must never appear.
func TestAFileIsLabeledBeforeItHasItsName(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	var labeled []os.FileInfo
	var refusal error
	d.LabelNew(func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		labeled = append(labeled, info)
		for _, name := range []string{"disk.img", "sub/disk.img"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s was there without a label", name)
			}
		}
		return refusal
	})
	sub, err := d.Strict("sub")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	fill := func(f *os.File) error { _, err := f.WriteString("x"); return err }
	if err := sub.Create("disk.img", os.Geteuid(), 0o600, fill); err != nil {
		t.Fatal(err)
	}
	made, err := os.Stat(filepath.Join(dir, "sub/disk.img"))
	if err != nil || len(labeled) != 1 || !os.SameFile(made, labeled[0]) {
		t.Errorf("%v were labeled, and %v was made: %v", labeled, made, err)
	}
	if err := os.Remove(filepath.Join(dir, "sub/disk.img")); err != nil {
		t.Fatal(err)
	}
	refusal = errors.New("no")
	if err := d.Create("disk.img", os.Geteuid(), 0o600, fill); !errors.Is(err, refusal) {
		t.Errorf("a file without its label was made: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("it left %v, %v", names, err)
	}
}

// QEMU must get the same device, opened by a temporary node with the label.
func TestADeviceIsOpenedByALabeledNode(t *testing.T) {
	device := loopDevice(t)
	k := newKubelet(t)
	k.Nodes = t.TempDir()
	k.link(device, "volumeDevices/kubernetes.io~local-volume/disk")
	volume, err := k.Open(VolumeID{Pod: "u", Name: "disk", Block: true})
	if err != nil {
		t.Fatal(err)
	}
	defer volume.Close()
	var labeled os.FileInfo
	volume.Label(func(path string) (err error) {
		labeled, err = os.Lstat(path)
		return err
	})
	f, err := volume.Device(unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || labeled == nil || !os.SameFile(opened, labeled) {
		t.Errorf("it was opened by %v, and %v was labeled: %v", opened, labeled, err)
	}
	if byNode(t, f, device) {
		t.Error("it was opened by the node's own device node")
	}
	if names, err := os.ReadDir(k.Nodes); err != nil || len(names) > 0 {
		t.Errorf("device nodes are left: %v, %v", names, err)
	}
	volume.Label(nil)
	plain, err := volume.Device(unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if !byNode(t, plain, device) {
		t.Error("without labels it was opened by another node than the node's")
	}
}

func byNode(t *testing.T, f *os.File, node string) bool {
	t.Helper()
	var want, got unix.Stat_t
	if err := errors.Join(unix.Stat(node, &want), unix.Fstat(int(f.Fd()), &got)); err != nil {
		t.Fatal(err)
	}
	if got.Rdev != want.Rdev {
		t.Errorf("opened %d:%d, want the device %d", got.Rdev>>8, got.Rdev&0xff, want.Rdev)
	}
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size != deviceSize {
		t.Errorf("it has %d bytes, %v", size, err)
	}
	return got.Ino == want.Ino && got.Dev == want.Dev
}

func TestADeviceIsNotOpenedByANodeWithoutItsLabel(t *testing.T) {
	k := newKubelet(t)
	k.Nodes = t.TempDir()
	k.link(loopDevice(t), "volumeDevices/kubernetes.io~local-volume/disk")
	volume, err := k.Open(VolumeID{Pod: "u", Name: "disk", Block: true})
	if err != nil {
		t.Fatal(err)
	}
	defer volume.Close()
	refusal := errors.New("no")
	volume.Label(func(string) error { return refusal })
	if f, err := volume.Device(unix.O_RDWR); !errors.Is(err, refusal) {
		f.Close()
		t.Errorf("a device was opened by a node without its label: %v", err)
	}
	if names, err := os.ReadDir(k.Nodes); err != nil || len(names) > 0 {
		t.Errorf("device nodes are left: %v, %v", names, err)
	}
}

func TestOnlyTheDeviceOfTheNumberIsOpened(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	null := unix.Mkdev(1, 3)
	if err := unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(null)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "other"), unix.S_IFCHR|0o666, unassigned); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	f, err := d.CharDevice("null", null, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, name := range []string{"other", "file", "nothing"} {
		if f, err := d.CharDevice(name, null, unix.O_RDWR); err == nil || errors.Is(err, unix.ENXIO) {
			f.Close()
			t.Errorf("%s: %v, want a refusal without a look at a driver", name, err)
		}
	}
}
