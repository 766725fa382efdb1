package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/shipped"
)

func writeFile(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func makeQCOW2(t *testing.T, path string, args ...string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	args = append(append([]string{"create", "-q", "-f", "qcow2"}, args...), path, "3M")
	if out, err := exec.Command(shipped.Program(t, "qemu-img"), args...).CombinedOutput(); err != nil {
		t.Fatalf("making an image: %v\n%s", err, out)
	}
	return path
}

func prepareOnly(t *testing.T, image launch.Image) launch.PreparedImage {
	t.Helper()
	prepared, err := prepare([]launch.Image{image})
	if err != nil {
		t.Fatal(err)
	}
	if len(prepared) != 1 || prepared[0].Name != image.Name {
		t.Fatalf("prepared %+v", prepared)
	}
	return prepared[0]
}

func TestAContainerDiskIsFoundInItsFolderAndGetsAnOverlay(t *testing.T) {
	dir := t.TempDir()
	source := makeQCOW2(t, filepath.Join(dir, "disk", "some-name.img"))
	if err := os.Mkdir(filepath.Join(dir, "disk", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := launch.Image{Name: "root", Source: filepath.Join(dir, "disk"), Overlay: filepath.Join(dir, "root.qcow2")}
	for _, time := range []string{"first", "again"} {
		p := prepareOnly(t, image)
		if p.Source != source || p.SourceFormat != "qcow2" || p.Overlay != image.Overlay || p.VirtualSize != 3<<20 {
			t.Errorf("%s: %+v", time, p)
		}
	}
	out, err := exec.Command(shipped.Program(t, "qemu-img"), "info", "--backing-chain", image.Overlay).CombinedOutput()
	if err != nil || !strings.Contains(string(out), source) {
		t.Errorf("QEMU sees %v\n%s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAnOverlayThatExistsIsNeverOverwritten(t *testing.T) {
	dir := t.TempDir()
	image := launch.Image{Name: "empty", Overlay: filepath.Join(dir, "empty.qcow2"), Size: 1 << 20}
	prepareOnly(t, image)
	if out, err := exec.Command(shipped.Program(t, "qemu-io"), "-f", "qcow2", "-c", "write -P 9 0 64k", image.Overlay).CombinedOutput(); err != nil {
		t.Fatalf("writing: %v\n%s", err, out)
	}
	image.Size = 2 << 20
	if p := prepareOnly(t, image); p.VirtualSize != 1<<20 || p.Source != "" || p.SourceFormat != "" {
		t.Errorf("prepared again: %+v", p)
	}
	if out, err := exec.Command(shipped.Program(t, "qemu-io"), "-f", "qcow2", "-c", "read -P 9 0 64k", image.Overlay).CombinedOutput(); err != nil ||
		strings.Contains(string(out), "failed") {
		t.Errorf("what was written is gone: %v\n%s", err, out)
	}
}

func TestARawDiskStaysRawWhateverItsGuestWrites(t *testing.T) {
	dir := t.TempDir()
	// The guest wrote a qcow2 header that names a file of the host.
	path := makeQCOW2(t, filepath.Join(dir, "disk.img"), "-u", "-b", "/etc/passwd", "-F", "raw")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	p := prepareOnly(t, launch.Image{Name: "claim", Source: path, Format: "raw", Device: filepath.Join(dir, "no-device")})
	if p.SourceFormat != "raw" || p.VirtualSize != info.Size() || p.BlockDevice {
		t.Errorf("%+v", p)
	}
}

func TestABlockDeviceComesBeforeAFile(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "disk.img"), 8<<20)
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Logf("no loop device can be had (%v); the file is found instead", err)
		p := prepareOnly(t, launch.Image{Name: "claim", Device: filepath.Join(dir, "none"), Source: file, Format: "raw"})
		if p.Source != file || p.BlockDevice {
			t.Errorf("%+v", p)
		}
		return
	}
	device := strings.TrimSpace(string(out))
	defer func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Errorf("detaching %s: %v", device, err)
		}
	}()
	p := prepareOnly(t, launch.Image{Name: "claim", Device: device, Source: filepath.Join(dir, "none"), Format: "raw"})
	if p.Source != device || !p.BlockDevice || p.VirtualSize != 8<<20 || p.LogicalBlock != 512 || p.PhysicalBlock < 512 {
		t.Errorf("%+v", p)
	}
}

func TestImagesThatCannotBeUsedAreNamedWithTheirReason(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		image launch.Image
		want  string
	}{
		"no /disk": {launch.Image{Source: filepath.Join(layout.VolumeDir("vol"), layout.ContainerDiskDir)},
			"its container image has no folder /disk: put the disk there, as the only file"},
		"no such path": {launch.Image{Source: filepath.Join(layout.VolumeDir("vol"), "images/a.img")},
			"its container image has no /images/a.img, where containerDisk.path says"},
		"empty claim":     {launch.Image{Source: filepath.Join(layout.VolumeDir("vol"), layout.DiskImage), Format: "raw"}, "it has no file /disk.img"},
		"no folder":       {launch.Image{Source: filepath.Join(writeFile(t, filepath.Join(dir, "file"), 1), "disk")}, "finding the disk"},
		"empty folder":    {launch.Image{Source: t.TempDir()}, "there is no file in"},
		"two files":       {launch.Image{Source: filepath.Dir(writeFile(t, writeFile(t, filepath.Join(dir, "two", "a"), 1)+"b", 1))}, "more than one file"},
		"terminal":        {launch.Image{Source: "/dev/null"}, "neither a file nor a block device"},
		"backing file":    {launch.Image{Source: makeQCOW2(t, filepath.Join(dir, "b"), "-u", "-b", "/etc/passwd", "-F", "raw")}, "needs a backing file"},
		"external data":   {launch.Image{Source: makeQCOW2(t, filepath.Join(dir, "d"), "-o", "data_file="+filepath.Join(dir, "data"))}, "in another file"},
		"not what it was": {launch.Image{Source: writeFile(t, filepath.Join(dir, "r"), 512), Format: "qcow2"}, "not a qcow2 image"},
		"no such folder":  {launch.Image{Overlay: filepath.Join(dir, "none", "x"), Size: 1}, "making the overlay"},
	} {
		t.Run(name, func(t *testing.T) {
			c.image.Name = "vol"
			_, err := prepare([]launch.Image{c.image})
			if err == nil || !strings.HasPrefix(err.Error(), "volume vol: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestVirtLauncherAnswersPrepare(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	source := writeFile(t, filepath.Join(r.dir, "disk.img"), 4<<20)
	reply := c.ask(launch.Request{Prepare: &launch.Prepare{Images: []launch.Image{{Name: "a", Source: source}}}})
	if reply.Error != "" || len(reply.Images) != 1 || reply.Images[0].SourceFormat != "raw" || reply.Images[0].VirtualSize != 4<<20 {
		t.Errorf("%+v", reply)
	}
	reply = c.ask(launch.Request{Prepare: &launch.Prepare{Images: []launch.Image{{Name: "a", Source: source + "x"}}}})
	if !strings.Contains(reply.Error, "volume a: ") {
		t.Errorf("%+v", reply)
	}
}

// GHSA-qw6q-3pgr-5cwq: a claim's disk image is a symlink, and the guest would read files of its launcher.
// GHSA-qv98-3369-g364: the same with an image's content that containerDisk.path and the paths of kernelBoot name.
func TestGHSAqw6q3pgr5cwqAndGHSAqv983369g364ADiskIsNoFileOfTheLauncher(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own")
	writeFile(t, own, 1<<20)
	for what, plant := range map[string]func(t *testing.T, root string) (source string){
		"disk.img is a symlink": func(t *testing.T, root string) string {
			return symlink(t, own, filepath.Join(root, "disk.img"))
		},
		"a relative one": func(t *testing.T, root string) string {
			up, err := filepath.Rel(root, own)
			if err != nil {
				t.Fatal(err)
			}
			return symlink(t, up, filepath.Join(root, "disk.img"))
		},
		"a folder on the way is one": func(t *testing.T, root string) string {
			return filepath.Join(symlink(t, filepath.Dir(own), filepath.Join(root, "disk")), "own")
		},
		"the folder with the only file is one": func(t *testing.T, root string) string {
			return symlink(t, filepath.Dir(own), filepath.Join(root, "disk"))
		},
		"the device of a process": func(t *testing.T, root string) string {
			return symlink(t, "/proc/self/exe", filepath.Join(root, "vmlinuz"))
		},
	} {
		for _, format := range []string{"", formatRaw} {
			root := t.TempDir()
			source := plant(t, root)
			prepared, err := prepare([]launch.Image{{Name: "root", Root: root, Source: source, Format: format}})
			if err == nil || !strings.Contains(err.Error(), "leads out of its volume") {
				t.Errorf("%s: prepared %+v, %v", what, prepared, err)
			}
		}
	}
	// A link within the volume is allowed.
	root := t.TempDir()
	inside := writeFile(t, filepath.Join(root, "images/a.img"), 1<<20)
	link := symlink(t, "images/a.img", filepath.Join(root, "disk.img"))
	if p := prepareOnly(t, launch.Image{Name: "root", Root: root, Source: link, Format: formatRaw}); p.Source != inside {
		t.Errorf("prepared %+v, want %s", p, inside)
	}
}

func symlink(t *testing.T, target, link string) string {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	return link
}
