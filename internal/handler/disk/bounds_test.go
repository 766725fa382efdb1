package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// A container's file system may have anything at a ConfigMap's path: its bound must be checked before anything is read.
func TestAFolderThatIsNoConfigMapIsNotRead(t *testing.T) {
	folder := layout.VolumeDir("v")
	for what, plant := range map[string]func(t *testing.T, c *container){
		"many files that are together too large": func(t *testing.T, c *container) {
			for i := range 64 {
				c.write(t, filepath.Join(folder, fmt.Sprintf("f%d", i)), "")
				if err := os.Truncate(c.real(filepath.Join(folder, fmt.Sprintf("f%d", i))), maxFile); err != nil {
					t.Fatal(err)
				}
			}
		},
		"one file that is too large": func(t *testing.T, c *container) {
			c.write(t, filepath.Join(folder, "f"), "")
			if err := os.Truncate(c.real(filepath.Join(folder, "f")), 1<<40); err != nil {
				t.Fatal(err)
			}
		},
		"too many files": func(t *testing.T, c *container) {
			for i := range maxFolder + 1 {
				c.write(t, filepath.Join(folder, fmt.Sprintf("f%d", i)), "")
			}
		},
		"too many folders": func(t *testing.T, c *container) {
			for i := range maxFolder {
				c.mkdir(t, filepath.Join(folder, fmt.Sprintf("d%d/d", i)))
			}
		},
		"a FIFO": func(t *testing.T, c *container) {
			c.mkdir(t, folder)
			if err := unix.Mkfifo(c.real(filepath.Join(folder, "f")), 0o666); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := newContainer(t)
			plant(t, c)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "v"}},
			}}))
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("an image was made of it")
			}
			const enough = 16 << 20
			if used := after.TotalAlloc - before.TotalAlloc; used > enough {
				t.Errorf("it took %d bytes to find that out", used)
			}
			if _, err := os.Stat(c.real(layout.ISOFile("v"))); !os.IsNotExist(err) {
				t.Errorf("an image is there: %v", err)
			}
		})
	}
}

// CVE-2026-13218: a file that virt-handler writes in a pod is replaced by a symlink, and virt-handler would write
// through it.
func TestCVE202613218AnImageIsNotWrittenThroughASymlink(t *testing.T) {
	c := newContainer(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("the node's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config"},
	}}
	target := c.real(layout.ISOFile("v"))
	c.mkdir(t, filepath.Dir(layout.ISOFile("v")))
	for _, planted := range []string{victim, "../../.." + victim} {
		if err := os.Symlink(planted, target); err != nil {
			t.Fatal(err)
		}
		_ = c.carry(t, vmi(data)) // refused or skipped, nothing may be written
		if got, err := os.ReadFile(victim); err != nil || string(got) != "the node's own" {
			t.Fatalf("a file of the node's now holds %q (%v)", got, err)
		}
		if err := os.Remove(target); err != nil {
			t.Fatal(err)
		}
	}
	// Now the folder itself is a link to elsewhere.
	folder := filepath.Dir(target)
	away := t.TempDir()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(away, folder); err != nil {
		t.Fatal(err)
	}
	if err := c.carry(t, vmi(data)); err == nil {
		t.Error("a symlink in the place of the folder was followed")
	}
	if left, err := os.ReadDir(away); err != nil || len(left) > 0 {
		t.Errorf("files were made in %s: %v (%v)", away, left, err)
	}
}

// GHSA-qw6q-3pgr-5cwq: a claim's disk image is a symlink to a file of the node or of the pod, which would be
// given to QEMU's user.
func TestGHSAqw6q3pgr5cwqASymlinkIsNoDiskImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to QEMU's user")
	}
	c := newContainer(t)
	c.pod.User = layout.QEMUUser
	c.write(t, "/etc/shadow", "secret")
	c.mkdir(t, layout.VolumeDir("v"))
	for _, target := range []string{"/etc/shadow", "../../../../../../etc/shadow", "/dev/null"} {
		link := c.real(filepath.Join(layout.VolumeDir("v"), layout.DiskImage))
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: "claim"},
		}}))
		if err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", target, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(c.real("/etc/shadow"), &st); err != nil || st.Uid != 0 {
			t.Errorf("%s now belongs to user %d (%v)", target, st.Uid, err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}
