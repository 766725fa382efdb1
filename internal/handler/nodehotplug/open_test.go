package nodehotplug

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
)

// claimed is a volume of pod u, an empty file system, in its kubelet's layout; folder is its mount point.
func claimed(t *testing.T) (volume *podpath.Volume, folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to QEMU's user")
	}
	kubelet := t.TempDir()
	folder = filepath.Join(kubelet, "pods/u/volumes/kubernetes.io~csi/pv/mount")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(folder, folder, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return opened(t, kubelet, podpath.VolumeID{Pod: "u", Name: "pv"}), folder
}

func opened(t *testing.T, kubelet string, id podpath.VolumeID) *podpath.Volume {
	t.Helper()
	volume, err := podpath.Volumes{Kubelet: kubelet, Host: "/"}.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(volume.Close)
	return volume
}

func request() Request {
	return Request{Volume: "a", Claim: "c", Capacity: func(context.Context, string) (int64, error) { return 4 << 20, nil }}
}

// TestACopyFitsExactly, whatever room the file system has.
func TestACopyFitsExactly(t *testing.T) {
	volume, _ := claimed(t)
	r := request()
	r.Size = 3<<20 + 512
	o, err := OpenDisk(t.Context(), volume, r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	if o.Image.VirtualSize != r.Size {
		t.Errorf("the image has %d bytes, want %d", o.Image.VirtualSize, r.Size)
	}
}

func TestAnEmptyClaimGetsAnImage(t *testing.T) {
	volume, folder := claimed(t)
	for range 2 { // the second time it exists
		o, err := OpenDisk(t.Context(), volume, request())
		if err != nil {
			t.Fatal(err)
		}
		o.File.Close()
		if o.Image.VirtualSize != 4<<20 || o.Image.BlockDevice || o.Image.SourceFormat != "raw" {
			t.Errorf("the image is %+v", o.Image)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(folder, layout.DiskImage), &st); err != nil || st.Uid != layout.QEMUUser {
		t.Errorf("the image belongs to %d (%v)", st.Uid, err)
	}
}

func TestAPlantedSymlinkIsNotFollowed(t *testing.T) {
	volume, folder := claimed(t)
	secret := filepath.Join(filepath.Dir(folder), "secret")
	if err := os.WriteFile(secret, []byte("not for guests"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(folder, layout.DiskImage)); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDisk(t.Context(), volume, request())
	if err == nil {
		o.File.Close()
		t.Fatalf("%s was opened", o.File.Name())
	}
}

func TestAReadOnlyVolumeIsOpenedForReadingAndNeverMade(t *testing.T) {
	volume, folder := claimed(t)
	r := request()
	r.ReadOnly = true
	if _, err := OpenDisk(t.Context(), volume, r); err == nil || !strings.HasPrefix(err.Error(), "PVC "+r.Claim+" is empty: ") {
		t.Fatalf("an empty claim: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("in the empty claim there is %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(folder, layout.DiskImage), make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDisk(t.Context(), volume, r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	if _, err := o.File.WriteString("x"); err == nil {
		t.Error("it can be written to")
	}
}

func TestABlockDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a block device")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
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
	kubelet := t.TempDir()
	link := filepath.Join(kubelet, "pods/u/volumeDevices/kubernetes.io~csi/pv")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(device, link)); err != nil {
		t.Fatal(err)
	}
	volume := opened(t, kubelet, podpath.VolumeID{Pod: "u", Name: "pv", Block: true})
	o, err := OpenDisk(t.Context(), volume, request())
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	if !o.Image.BlockDevice || o.Image.VirtualSize != 8<<20 || o.Image.LogicalBlock != 512 || !o.Image.DirectIO {
		t.Errorf("the device is %+v", o.Image)
	}
	if size, err := SizeFor(volume, 16<<20); err != nil || size != 8<<20 {
		t.Errorf("for a claim of 16 MiB it says %d, %v", size, err)
	}
}
