package podpath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes mounts and device nodes")
	}
}

// Opening a character device without a driver fails with ENXIO, which reveals an attempt.
var unassigned = int(unix.Mkdev(0x1ff, 7))

func TestAPlantedDeviceIsNeverOpened(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		if err := unix.Mknod(filepath.Join(dir, "disk.img"), kind|0o666, unassigned); err != nil {
			t.Fatal(err)
		}
		d := open(t, dir)
		if _, err := d.File("disk.img", unix.O_RDWR); err == nil || errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("opening it: %v, want a refusal without a look at its driver", err)
		}
		if _, err := d.ReadFile("disk.img", 10); err == nil || errors.Is(err, unix.ENXIO) {
			t.Errorf("reading it: %v", err)
		}
		if err := d.OwnFile("disk.img", 107); err == nil {
			t.Error("it was given to a guest's process as if it were a file")
		}
		if err := os.Remove(filepath.Join(dir, "disk.img")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALeaseIsWaitedForOnlySoLong(t *testing.T) {
	name := filepath.Join(t.TempDir(), "disk.img")
	holder, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system knows no leases: %v", err)
	}
	begun := time.Now()
	f, err := open(t, filepath.Dir(name)).File("disk.img", unix.O_RDWR)
	if err == nil {
		f.Close()
		t.Fatal("a file was opened that another process had a lease on and did not give up")
	}
	if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "lease") {
		t.Errorf("the error does not name the file and the lease: %v", err)
	}
	if waited := time.Since(begun); waited < leasePatience {
		t.Errorf("it gave up after %v", waited)
	}
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	if f, err = open(t, filepath.Dir(name)).File("disk.img", unix.O_RDWR); err != nil {
		t.Errorf("after the lease: %v", err)
	} else {
		f.Close()
	}
}

// kubelet is a kubelet's folder with one pod, and a container's file system that its author wrote.
type kubelet struct {
	Volumes
	t *testing.T
}

func newKubelet(t *testing.T) kubelet {
	t.Helper()
	needRoot(t)
	return kubelet{Volumes: Volumes{Kubelet: t.TempDir(), Host: nodeRoot(t)}, t: t}
}

// nodeRoot is the root directory of a process with mounts of its own, as virt-handler sees that of the node's first
// process.
func nodeRoot(t *testing.T) string {
	t.Helper()
	process := exec.Command("sleep", "infinity")
	process.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill() // it runs until then
		_ = process.Wait()         // with the signal's error
	})
	return fmt.Sprintf("/proc/%d/root", process.Process.Pid)
}

// folder makes a folder of the pod's.
func (k kubelet) folder(path string) string {
	k.t.Helper()
	full := filepath.Join(k.Kubelet, "pods/u", path)
	if err := os.MkdirAll(full, 0o755); err != nil {
		k.t.Fatal(err)
	}
	return full
}

func (k kubelet) mounted(path string) {
	k.t.Helper()
	full := k.folder(path)
	if err := unix.Mount(full, full, "", unix.MS_BIND, ""); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = unix.Unmount(full, unix.MNT_DETACH) })
}

func (k kubelet) link(target, path string) {
	k.t.Helper()
	k.folder(filepath.Dir(path))
	if err := os.Symlink(target, filepath.Join(k.Kubelet, "pods/u", path)); err != nil {
		k.t.Fatal(err)
	}
}

// deviceSize is the size of loopDevice.
const deviceSize = 1 << 20

func loopDevice(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, deviceSize), 0o600); err != nil {
		t.Fatal(err)
	}
	var warnings strings.Builder
	losetup := exec.Command("losetup", "--find", "--show", image)
	losetup.Stderr = &warnings
	out, err := losetup.Output()
	if err != nil {
		t.Fatalf("making a block device: %v\n%s", err, warnings.String())
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

func TestVolumesAreFoundWhereTheKubeletHasThem(t *testing.T) {
	device := loopDevice(t)
	k := newKubelet(t)
	k.mounted("volumes/kubernetes.io~csi/csi/mount")
	k.mounted("volumes/kubernetes.io~local-volume/local")
	k.link(device, "volumeDevices/kubernetes.io~local-volume/disk")
	published := filepath.Join(k.Kubelet, "plugins/publish/pv")
	if err := os.MkdirAll(filepath.Dir(published), 0o755); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(published, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	k.link(published, "volumeDevices/kubernetes.io~csi/published")
	own := t.TempDir()
	for what, tc := range map[string]struct {
		id   VolumeID
		path string
	}{
		"a CSI driver's file system": {VolumeID{Name: "csi"}, filepath.Join(k.Kubelet, "pods/u/volumes/kubernetes.io~csi/csi/mount")},
		"another plugin's":           {VolumeID{Name: "local"}, filepath.Join(k.Kubelet, "pods/u/volumes/kubernetes.io~local-volume/local")},
		"a folder of the node's":     {VolumeID{Name: "host", HostPath: own}, own},
		"one in the kubelet's":       {VolumeID{Name: "host", HostPath: k.Kubelet}, k.Kubelet},
		"a device of the node's":     {VolumeID{Name: "disk", Block: true}, device},
		"a CSI driver's device":      {VolumeID{Name: "published", Block: true}, published},
	} {
		tc.id.Pod = "u"
		v, err := k.Open(tc.id)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		defer v.Close()
		var want, got unix.Stat_t
		if err := unix.Stat(tc.path, &want); err != nil {
			t.Fatal(err)
		}
		if tc.id.Block {
			opensDevice(t, what, v, want.Rdev)
			continue
		}
		if err := v.Folder.with(func(fd int) error { return unix.Fstat(fd, &got) }); err != nil || got.Ino != want.Ino || got.Dev != want.Dev {
			t.Errorf("%s: another folder was opened (%v)", what, err)
		}
	}
}

func opensDevice(t *testing.T, what string, v *Volume, number uint64) {
	t.Helper()
	f, err := v.Device(unix.O_RDWR)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size != deviceSize {
		t.Errorf("%s: it has %d bytes (%v)", what, size, err)
	}
	var got unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &got); err != nil || got.Rdev != number {
		t.Errorf("%s: device %x was opened, want %x (%v)", what, got.Rdev, number, err)
	}
}

// A pod's author chose these names, or the folders were tampered with.
func TestWhatTheKubeletHasNotSetUpIsNoVolume(t *testing.T) {
	k := newKubelet(t)
	k.folder("volumes/kubernetes.io~csi/pv-unmounted/mount")
	k.mounted("volumes/kubernetes.io~empty-dir/pv-own")
	k.folder("volumes/kubernetes.io~csi/pv-two/mount")
	k.folder("volumes/kubernetes.io~nfs/pv-two")
	k.link("/etc", "volumes/kubernetes.io~nfs/pv-link")
	k.link("/dev/null", "volumeDevices/kubernetes.io~csi/pv-null")
	k.link("/etc/passwd", "volumeDevices/kubernetes.io~csi/pv-file")
	k.link("../../../../etc", "volumeDevices/kubernetes.io~csi/pv-relative")
	// A container of the pod has this under the path of hotplugged volumes.
	k.folder("path")
	if err := unix.Mknod(filepath.Join(k.Kubelet, "pods/u/path/disk"), unix.S_IFBLK|0o666, unassigned); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		id   VolumeID
		want string
	}{
		"a device in the image":                {VolumeID{Pod: "u", Name: "disk", Block: true}, "has not set it up"},
		"a volume that is not mounted yet":     {VolumeID{Pod: "u", Name: "pv-unmounted"}, "nothing is mounted"},
		"an emptyDir with the volume's name":   {VolumeID{Pod: "u", Name: "pv-own"}, "has not set it up"},
		"two volumes of the same name":         {VolumeID{Pod: "u", Name: "pv-two"}, "both"},
		"a symlink instead of a folder":        {VolumeID{Pod: "u", Name: "pv-link"}, ""},
		"a character device":                   {VolumeID{Pod: "u", Name: "pv-null", Block: true}, "not that of a block device"},
		"a file":                               {VolumeID{Pod: "u", Name: "pv-file", Block: true}, "not that of a block device"},
		"a relative link":                      {VolumeID{Pod: "u", Name: "pv-relative", Block: true}, "no absolute path"},
		"a pod that is not on the node":        {VolumeID{Pod: "v", Name: "disk"}, ""},
		"a pod that is a path":                 {VolumeID{Pod: "..", Name: "disk"}, "is no name"},
		"a volume that is a path":              {VolumeID{Pod: "u", Name: "../../../etc"}, "is no name"},
		"a folder where a device is asked for": {VolumeID{Pod: "u", Name: "host", HostPath: "/etc", Block: true}, "not that of a block device"},
	} {
		v, err := k.Open(tc.id)
		if err == nil {
			v.Close()
			t.Errorf("%s was opened", what)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}

func TestTheKubeletUnmountsWhatAGuestHasOpen(t *testing.T) {
	k := newKubelet(t)
	mount := k.folder("volumes/kubernetes.io~csi/pv/mount")
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(mount, "disk.img"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := k.Open(VolumeID{Pod: "u", Name: "pv"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := v.Folder.File("disk.img", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v.Close()
	if err := unix.Unmount(mount, 0); err != nil {
		t.Fatalf("the kubelet can't unmount the volume: %v", err)
	}
	if v, err := k.Open(VolumeID{Pod: "u", Name: "pv"}); err == nil {
		v.Close()
		t.Error("the folder that the volume was mounted at is taken for the volume")
	}
	if _, err := os.Stat(filepath.Join(mount, "disk.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("it is still mounted (%v)", err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "data" {
		t.Errorf("the open disk reads %q (%v)", data, err)
	}
	if _, err := f.WriteString("more"); err != nil {
		t.Errorf("the open disk can't be written: %v", err)
	}
}

// Other processes make the kubelet's folders, so the test spells their names.
func TestAnEmptyDirIsWhereTheKubeletHasIt(t *testing.T) {
	if got := EmptyDir("private"); got != "volumes/kubernetes.io~empty-dir/private" {
		t.Errorf("the emptyDir private is looked for in %s", got)
	}
}
