package guest

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/test/guest/kernel"
)

// Flavor is the kernel that a guest runs.
type Flavor string

const (
	// Lean is our own kernel (package kernel): the drivers for most tests are built in, and emulated it starts in
	// a fourth of the time.
	Lean Flavor = "lean"
	// Full is Debian's general kernel with its modules: for SATA, USB, a watchdog and network cards other than virtio,
	// and for tests of a distribution's kernel, such as its signature for Secure Boot.
	Full Flavor = "full"
)

// kernelPackages names each flavor's kernel package, with source or binary: the kernel is in a package on which this
// one depends.
var kernelPackages = map[Flavor]string{
	Lean: kernel.Package,
	Full: "linux-image-amd64",
}

// Files are the parts of a built guest.
type Files struct {
	Kernel string
	Initrd string
	// Disk is a qcow2 image with kernel, initramfs and a boot loader.
	Disk string
}

// source is this package itself: the guest is rebuilt when it changes.
//
//go:embed *.go *.txt skeleton
var source embed.FS

const guestdPackage = "drydock.dev/drydock/test/guest/guestd"

// Build makes the guest below cache, or returns the existing one if its inputs are the same. It runs the Go tool, so
// the caller must be inside the module.
func Build(ctx context.Context, cache string, flavor Flavor) (Files, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Files{}, fmt.Errorf("making the guest's folder: %w", err)
	}
	guestd := filepath.Join(cache, "guestd")
	if err := compile(ctx, guestd); err != nil {
		return Files{}, err
	}
	packages, err := Packages(flavor)
	if err != nil {
		return Files{}, err
	}
	tree, err := debian.Extract(ctx, cache, packages)
	if err != nil {
		return Files{}, err
	}
	from := parts{cache: cache, tree: tree, guestd: guestd, flavor: flavor}
	if flavor == Lean {
		if from.kernel, err = kernel.Build(ctx, kernel.Folder(cache), cache, tree); err != nil {
			return Files{}, err
		}
	}
	key, err := buildKey(from)
	if err != nil {
		return Files{}, err
	}
	folder := filepath.Join(cache, fmt.Sprintf("guest-%s-%s", flavor, key))
	if _, err := os.Stat(folder); err == nil {
		return filesIn(folder), nil
	}
	return assemble(ctx, folder, from)
}

// WriteDiskAs makes a lean guest's disk that greets as another distribution (guestd's: alpine, cirros, fedora).
func WriteDiskAs(ctx context.Context, cache, distribution, to string) error {
	files, err := Build(ctx, cache, Lean)
	if err != nil {
		return err
	}
	packages, err := Packages(Lean)
	if err != nil {
		return err
	}
	tree, err := debian.Extract(ctx, cache, packages)
	if err != nil {
		return err
	}
	return writeDisk(ctx, to, diskParts{
		kernel:      files.Kernel,
		initrd:      files.Initrd,
		bootSector:  bootSectorOf(tree),
		bootManager: bootManager(tree),
		args:        "drydock.as=" + distribution,
		cache:       cache,
	})
}

// BuildKernel makes the lean guest's kernel unless it exists. That takes minutes; the rest takes seconds.
func BuildKernel(ctx context.Context, cache string) error {
	packages, err := Packages(Lean)
	if err != nil {
		return err
	}
	tree, err := debian.Extract(ctx, cache, packages)
	if err != nil {
		return err
	}
	_, err = kernel.Build(ctx, kernel.Folder(cache), cache, tree)
	return err
}

// Packages lists the Debian packages of a guest.
func Packages(flavor Flavor) ([]string, error) {
	list, err := fs.ReadFile(source, "packages.txt")
	if err != nil {
		return nil, fmt.Errorf("reading the guest's list of packages: %w", err)
	}
	return append(debian.ParseList(string(list)), kernelPackages[flavor]), nil
}

func filesIn(folder string) Files {
	return Files{
		Kernel: filepath.Join(folder, "vmlinuz"),
		Initrd: filepath.Join(folder, "initrd.img"),
		Disk:   filepath.Join(folder, "guest.qcow2"),
	}
}

type parts struct {
	cache  string
	tree   debian.Tree
	guestd string
	flavor Flavor
	// kernel is our own, or empty if the kernel is in the tree.
	kernel kernel.Kernel
}

func (p parts) copyKernel(to string) error {
	if p.kernel.File == "" {
		return p.tree.CopyKernel(to)
	}
	text, err := os.ReadFile(p.kernel.File)
	if err != nil {
		return fmt.Errorf("reading the kernel: %w", err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		return fmt.Errorf("writing the kernel: %w", err)
	}
	return nil
}

// assemble makes the guest's files in a folder that appears only when it is complete, and removes older folders of the
// same flavor.
func assemble(ctx context.Context, folder string, from parts) (Files, error) {
	if err := debian.Whole(folder, func(made, _ string) error { return write(ctx, filesIn(made), from) }); err != nil {
		return Files{}, fmt.Errorf("making the guest: %w", err)
	}
	if err := debian.RemoveOthers(folder, fmt.Sprintf("guest-%s-*", from.flavor)); err != nil {
		return Files{}, err
	}
	return filesIn(folder), nil
}

func write(ctx context.Context, files Files, from parts) error {
	if err := from.copyKernel(files.Kernel); err != nil {
		return err
	}
	if err := writeInitrd(ctx, files.Initrd, from); err != nil {
		return err
	}
	return writeDisk(ctx, files.Disk, diskParts{
		kernel:      files.Kernel,
		initrd:      files.Initrd,
		bootSector:  bootSectorOf(from.tree),
		bootManager: bootManager(from.tree),
		cache:       from.cache,
	})
}

func bootSectorOf(tree debian.Tree) string { return tree.Path("/usr/lib/syslinux/mbr/mbr.bin") }

func bootManager(tree debian.Tree) string {
	return tree.Path("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
}

// compile makes the same binary in whatever folder the source is, because the key of the guest's files hashes it.
func compile(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w", "-o", binary, guestdPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the guest's program: %w\n%s", err, out)
	}
	return nil
}

func buildKey(from parts) (string, error) {
	sum := sha256.New()
	binary, err := os.ReadFile(from.guestd)
	if err != nil {
		return "", fmt.Errorf("reading the guest's program: %w", err)
	}
	sum.Write(binary)
	sum.Write([]byte(from.tree.Key + from.kernel.Key))
	err = fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(source, path)
		fmt.Fprintf(sum, "%s %d\n", path, len(data))
		sum.Write(data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading how the guest is built: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
