package plug

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/layout"
)

// container is the file system of a holder with volume a, an empty folder.
func container(t *testing.T) (root *podpath.Dir, volume string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to QEMU's user")
	}
	dir := t.TempDir()
	volume = filepath.Join(dir, "path/a")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := podpath.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	return root, volume
}

func request() Request {
	return Request{Volume: "a", Claim: "c", Capacity: func(context.Context, string) (int64, error) { return 4 << 20, nil }}
}

func TestAnEmptyClaimGetsAnImage(t *testing.T) {
	root, volume := container(t)
	for range 2 { // the second time it is there
		o, err := OpenDisk(t.Context(), root, request())
		if err != nil {
			t.Fatal(err)
		}
		o.File.Close()
		if o.Image.VirtualSize != 4<<20 || o.Image.BlockDevice || o.Image.SourceFormat != "raw" {
			t.Errorf("the image is %+v", o.Image)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(volume, layout.DiskImage), &st); err != nil || st.Uid != layout.QEMUUser {
		t.Errorf("the image belongs to %d (%v)", st.Uid, err)
	}
}

func TestAPlantedSymlinkIsNotFollowed(t *testing.T) {
	root, volume := container(t)
	secret := filepath.Join(filepath.Dir(volume), "secret")
	if err := os.WriteFile(secret, []byte("not for guests"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(volume, layout.DiskImage)); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDisk(t.Context(), root, request())
	if err == nil {
		o.File.Close()
		t.Fatalf("%s was opened", o.File.Name())
	}
}

func TestAReadOnlyVolumeIsOpenedForReadingAndNeverMade(t *testing.T) {
	root, volume := container(t)
	r := request()
	r.ReadOnly = true
	if _, err := OpenDisk(t.Context(), root, r); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("an empty claim: %v", err)
	}
	if err := os.WriteFile(filepath.Join(volume, layout.DiskImage), make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDisk(t.Context(), root, r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	if _, err := o.File.WriteString("x"); err == nil {
		t.Error("it can be written to")
	}
}

func TestABlockDevice(t *testing.T) {
	root, volume := container(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("making a block device: %v\n%s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(volume); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(volume, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDisk(t.Context(), root, request())
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	if !o.Image.BlockDevice || o.Image.VirtualSize != 8<<20 || o.Image.LogicalBlock != 512 || !o.Image.DirectIO {
		t.Errorf("the device is %+v", o.Image)
	}
	if size, err := SizeFor(root, "/path/a", 16<<20); err != nil || size != 8<<20 {
		t.Errorf("for a claim of 16 MiB it says %d, %v", size, err)
	}
}
