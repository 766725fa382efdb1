package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"drydock.dev/drydock/images/rootfs"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/shipped"
)

// buildCache is shared with `make images`.
const buildCache = "../../build/cache"

func TestAnImageIsMadeAgainOnlyWhenItsPartsChange(t *testing.T) {
	b := builder{options{out: t.TempDir(), tag: "devel"}}
	layers := 0
	of := func(key string) image {
		return image{parts: func(context.Context, builder) ([]part, error) {
			return []part{{key: key, make: func() (*rootfs.FS, error) {
				layers++
				return rootfs.New(), nil
			}}}, nil
		}}
	}
	for _, step := range []struct {
		name  string
		image image
		tag   string
		made  bool
	}{
		{"the first time", of("a"), "devel", true},
		{"nothing changed", of("a"), "devel", false},
		{"a part changed", of("b"), "devel", true},
		{"the tag changed", of("b"), "v1", true},
		{"the configuration changed", image{parts: of("b").parts, config: v1.Config{User: "1"}}, "v1", true},
	} {
		b.tag = step.tag
		before := layers
		made, err := b.writeArchive(t.Context(), "image", step.image)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if made != step.made || (layers > before) != step.made {
			t.Errorf("%s: made %t, want %t", step.name, made, step.made)
		}
	}
	if err := os.Remove(b.archivePath("image")); err != nil {
		t.Fatal(err)
	}
	image := image{parts: of("b").parts, config: v1.Config{User: "1"}}
	if made, err := b.writeArchive(t.Context(), "image", image); err != nil || !made {
		t.Errorf("the archive was removed: made %t, %v", made, err)
	}
}

func TestAnImageWhosePartsFailIsNotMade(t *testing.T) {
	b := builder{options{out: t.TempDir()}}
	failing := image{parts: func(context.Context, builder) ([]part, error) {
		return []part{{make: func() (*rootfs.FS, error) { return nil, errors.New("no such file") }}}, nil
	}}
	_, err := b.writeArchive(t.Context(), "image", failing)
	if err == nil || err.Error() != "making a layer of image: no such file" {
		t.Errorf("got the error %v", err)
	}
	if files, err := os.ReadDir(b.out); err != nil || len(files) > 0 {
		t.Errorf("something was left: %v, %v", files, err)
	}
}

func TestTheCommandLineIsUnderstood(t *testing.T) {
	o, err := parseOptions([]string{"-tag", "v1", "virt", "test-guest"})
	if err != nil || o.tag != "v1" || !slices.Equal(o.images, []string{"virt", "test-guest"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parseOptions(nil); err != nil || !slices.Equal(o.images, imageNames()) {
		t.Errorf("without names: got %+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"launcher":                   "there is no image \"launcher\"; there is libguestfs-tools, ",
		"-rootfs=/x":                 fmt.Sprintf("-rootfs takes one image, not %d", len(images)),
		"-rootfs=/x virt test-guest": "-rootfs takes one image, not 2",
	} {
		if _, err := parseOptions(strings.Fields(args)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %q", args, err, want)
		}
	}
}

func TestAProgramThatNeedsLibrariesIsRefused(t *testing.T) {
	err := checkStatic(shipped.File(t, layout.QEMUImgBinary))
	if err == nil || !strings.Contains(err.Error(), "build it with CGO_ENABLED=0") {
		t.Errorf("got the error %v", err)
	}
	err = checkStatic(filepath.Join(t.TempDir(), "virt"))
	if err == nil || !strings.Contains(err.Error(), "make it first, by make build") {
		t.Errorf("got the error %v", err)
	}
}

// TestTheDockerfilesSayWhatTheBuilderDoes compares the two descriptions of an image: the builder makes the content of
// both, but the entry points must be equal.
func TestTheDockerfilesSayWhatTheBuilderDoes(t *testing.T) {
	for name, image := range images {
		text, err := os.ReadFile(filepath.Join("..", name, "Dockerfile"))
		if err != nil {
			t.Errorf("%s has no Dockerfile: %v", name, err)
			continue
		}
		said := instructions(string(text))
		if !strings.HasSuffix(strings.Join(said["RUN"], "\n"), "-rootfs /rootfs "+name) {
			t.Errorf("%s: its Dockerfile does not have the builder make it", name)
		}
		for instruction, want := range map[string]string{
			"ENTRYPOINT": words(t, image.config.Entrypoint),
			"CMD":        words(t, image.config.Cmd),
			"USER":       image.config.User,
			"ENV":        strings.Join(image.config.Env, " "),
		} {
			if got := strings.Join(said[instruction], " "); got != want {
				t.Errorf("%s: its Dockerfile says %s %q, the builder %q", name, instruction, got, want)
			}
		}
	}
}

// words formats a command as Dockerfiles do.
func words(t *testing.T, command []string) string {
	t.Helper()
	if len(command) == 0 {
		return ""
	}
	data, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func instructions(dockerfile string) map[string][]string {
	said := map[string][]string{}
	for line := range strings.Lines(dockerfile) {
		if word, rest, found := strings.Cut(strings.TrimSpace(line), " "); found {
			said[word] = append(said[word], rest)
		}
	}
	return said
}

// TestQEMUStartsInTheLauncherImage runs the emulator and qemu-img from the image's own files, as a launcher pod does:
// as user 107, without any capability.
func TestQEMUStartsInTheLauncherImage(t *testing.T) {
	base, err := launcherBase(t.Context(), buildCache)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := base.make()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := layer.WriteFolder(root); err != nil {
		t.Fatal(err)
	}
	const quit = `{"execute":"qmp_capabilities"}{"execute":"query-status"}{"execute":"quit"}`
	for _, test := range []struct {
		name, input, want string
		command           []string
	}{
		{"qemu-img", "", "Supported image formats:", []string{layout.QEMUImgBinary, "--help"}},
		{"the reader of a console's log", "a line", "a line", []string{layout.CatBinary}},
		{"an emulated machine with the devices of a guest", quit, `"status": "prelaunch"`, []string{
			layout.QEMUBinary, "-machine", "q35", "-accel", "tcg", "-nodefaults", "-no-user-config",
			"-display", "none", "-S", "-qmp", "stdio",
			"-device", "virtio-gpu-pci", "-device", "qemu-xhci", "-device", "usb-tablet", "-vnc", "unix:/tmp/vnc.sock",
			"-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0", "-device", "e1000e", "-device", "e1000", "-device", "rtl8139",
			"-device", "virtio-scsi-pci", "-device", "virtio-rng-pci", "-device", "i6300esb", "-device", "pvpanic-pci",
		}},
		{"UEFI with secure boot", quit, `"status": "prelaunch"`, []string{
			layout.QEMUBinary, "-machine", "q35,smm=on", "-nodefaults", "-display", "none", "-S", "-qmp", "stdio",
			"-device", "VGA",
			"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
			"-drive", "if=pflash,unit=1,format=raw,snapshot=on,file=/usr/share/OVMF/OVMF_VARS_4M.ms.fd",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), test.command[0], test.command[1:]...)
			cmd.Dir, cmd.Env, cmd.Stdin = "/", []string{path}, strings.NewReader(test.input)
			cmd.SysProcAttr = confined(root)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil || !strings.Contains(out.String(), test.want) {
				t.Errorf("%v; it says %s", err, &out)
			}
		})
	}
}

// TestTheImporterImageReadsImages runs its programs from its own files, as a worker does: as user 107, without any
// capability.
func TestTheImporterImageReadsImages(t *testing.T) {
	base, err := importerBase(t.Context(), buildCache)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := base.make()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := layer.WriteFolder(root); err != nil {
		t.Fatal(err)
	}
	for want, command := range map[string][]string{
		"vhdx":    {layout.QEMUImgBinary, "--help"},
		"liblzma": {"/usr/bin/xz", "--version"},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Env = "/", []string{path}
		cmd.SysProcAttr = confined(root)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v; it says %s", command, err, out)
		}
	}
	bundle, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || !strings.Contains(string(bundle), "BEGIN CERTIFICATE") {
		t.Errorf("it trusts nobody: %v", err)
	}
}

// confined runs a process in a folder of its own as user 107. Without root it uses a user namespace.
func confined(root string) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: qemuID, Gid: qemuID}}
	if os.Geteuid() != 0 {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: qemuID, HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: qemuID, HostID: os.Getegid(), Size: 1}}
		attributes.Credential.NoSetGroups = true
	}
	return attributes
}
