package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	lists "drydock.dev/drydock/images"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/guest"
)

// qemuID is the user and group of QEMU in a launcher pod, and the owner of the disk in a containerDisk.
// Users of KubeVirt rely on the number.
const qemuID = 107

type image struct {
	config v1.Config
	// packages returns the Debian packages that files are taken from.
	packages func() ([]string, error)
	// parts returns the layers, with the one that changes least first.
	parts func(ctx context.Context, b builder) ([]part, error)
}

const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

var images = map[string]image{
	"virt": {
		config:   v1.Config{Entrypoint: []string{"/usr/bin/virt"}, Env: []string{path}},
		packages: listOf("virt"),
		parts:    virtParts,
	},
	"virt-launcher": {
		config:   v1.Config{Entrypoint: []string{layout.LauncherBinary}, Env: []string{path, layout.SmallHeap}, User: "107:107"},
		packages: listOf("virt-launcher"),
		parts:    launcherParts,
	},
	"virt-importer": {
		config:   v1.Config{Entrypoint: []string{"/usr/bin/virt-importer"}, Env: []string{path}, User: "107:107"},
		packages: listOf("virt-importer"),
		parts:    importerParts,
	},
	"libguestfs-tools": {
		config: v1.Config{
			Cmd: []string{"/bin/bash"}, User: "107:107",
			// The kernel's cipher tests, unneeded here, are most of the machine's start time.
			Env: []string{path, "HOME=/tmp", "LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_PATH=" + applianceDir, "LIBGUESTFS_APPEND=cryptomgr.notests"},
		},
		packages: listOf("libguestfs-tools"),
		parts:    guestfsParts,
	},
	"test-guest":        {packages: packagesOf(guest.Lean), parts: diskOf(guest.Lean)},
	"test-guest-full":   {packages: packagesOf(guest.Full), parts: diskOf(guest.Full)},
	"test-guest-kernel": {packages: packagesOf(guest.Lean), parts: kernelOf(guest.Lean)},
	"test-tools": {
		config:   v1.Config{Cmd: []string{"/bin/sh"}, Env: []string{path}},
		packages: listOf("test-tools"),
		parts:    toolsParts,
	},
}

func imageNames() []string { return slices.Sorted(maps.Keys(images)) }

// virtParts are certificates, users, and the program. There is no shell and no library: an intruder can
// do no more than the program.
func virtParts(ctx context.Context, b builder) ([]part, error) {
	tree, err := treeOf(ctx, b.cache, "virt")
	if err != nil {
		return nil, err
	}
	program, err := b.program("virt")
	if err != nil {
		return nil, err
	}
	base := func() (*rootfs.FS, error) {
		root := newBase("virt:x:1001:1001:Drydock:/:/sbin/nologin", "virt:x:1001:")
		bundle, err := certificateBundle(tree)
		if err != nil {
			return nil, err
		}
		root.File("/etc/ssl/certs/ca-certificates.crt", 0o644, bundle)
		return root, nil
	}
	return []part{{key: tree.Key, make: base}, program}, nil
}

// launcherParts are QEMU with its firmware and libraries, and virt-launcher on top, so that a change of
// the code changes a small layer.
func launcherParts(ctx context.Context, b builder) ([]part, error) {
	base, err := launcherBase(ctx, b.cache)
	if err != nil {
		return nil, err
	}
	program, err := b.program("virt-launcher")
	if err != nil {
		return nil, err
	}
	launcher := program.make
	program.key += " " + layout.FreezerBinary
	program.make = func() (*rootfs.FS, error) {
		root, err := launcher()
		if err != nil {
			return nil, err
		}
		root.Symlink(layout.FreezerBinary, filepath.Base(layout.LauncherBinary))
		return root, nil
	}
	return []part{base, program}, nil
}

func launcherBase(ctx context.Context, cache string) (part, error) {
	_, base, err := qemuBase(ctx, cache, "virt-launcher")
	return base, err
}

// importerParts are qemu-img and xz with their libraries, certificates, and virt-importer on top.
func importerParts(ctx context.Context, b builder) ([]part, error) {
	base, err := importerBase(ctx, b.cache)
	if err != nil {
		return nil, err
	}
	program, err := b.program("virt-importer")
	if err != nil {
		return nil, err
	}
	return []part{base, program}, nil
}

func importerBase(ctx context.Context, cache string) (part, error) {
	tree, base, err := qemuBase(ctx, cache, "virt-importer")
	if err != nil {
		return part{}, err
	}
	programs := base.make
	base.make = func() (*rootfs.FS, error) {
		root, err := programs()
		if err != nil {
			return nil, err
		}
		bundle, err := certificateBundle(tree)
		if err != nil {
			return nil, err
		}
		root.File("/etc/ssl/certs/ca-certificates.crt", 0o644, bundle)
		return root, nil
	}
	return base, nil
}

// qemuBase is the layer with the files of an image's lists, for user 107.
func qemuBase(ctx context.Context, cache, image string) (debian.Tree, part, error) {
	patterns, err := readList(image + "/files.txt")
	if err != nil {
		return debian.Tree{}, part{}, err
	}
	tree, err := treeOf(ctx, cache, image)
	if err != nil {
		return debian.Tree{}, part{}, err
	}
	return tree, part{
		key: tree.Key + " " + strings.Join(patterns, " "),
		make: func() (*rootfs.FS, error) {
			root := newBase(fmt.Sprintf("qemu:x:%d:%d:QEMU:/:/sbin/nologin", qemuID, qemuID), fmt.Sprintf("qemu:x:%d:", qemuID))
			return root, copyFiles(root, tree, patterns)
		},
	}, nil
}

// newBase returns the base of every image with a program.
func newBase(user, group string) *rootfs.FS {
	root := rootfs.New()
	root.File("/etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\n"+user+"\n"))
	root.File("/etc/group", 0o644, []byte("root:x:0:\n"+group+"\n"))
	root.Dir("/run", 0o755)
	root.Symlink("/var/run", "/run")
	root.Dir("/tmp", 0o777|fs.ModeSticky)
	root.Dir("/var/tmp", 0o777|fs.ModeSticky)
	return root
}

// program is the layer with one of Drydock's programs.
func (b builder) program(name string) (part, error) {
	file := filepath.Join(b.bin, name)
	if err := checkStatic(file); err != nil {
		return part{}, err
	}
	key, err := fileKey(file)
	if err != nil {
		return part{}, err
	}
	return part{key: key, make: func() (*rootfs.FS, error) {
		root := rootfs.New()
		return root, root.Copy("/usr/bin/"+name, file)
	}}, nil
}

// checkStatic returns an error for a program that needs libraries, which its image lacks.
func checkStatic(name string) error {
	file, err := elf.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not there: make it first, by make build", name)
	}
	if err != nil {
		return fmt.Errorf("reading the program %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the program %s: %w", name, err)
	}
	if len(libraries) > 0 {
		return fmt.Errorf("%s needs %s: build it with CGO_ENABLED=0", name, strings.Join(libraries, ", "))
	}
	return nil
}

// certificateBundle joins the certificates of the package, as its maintainer script would.
func certificateBundle(tree debian.Tree) ([]byte, error) {
	names, err := tree.Glob("/usr/share/ca-certificates/mozilla/*.crt")
	if err != nil {
		return nil, err
	}
	var bundle bytes.Buffer
	for _, name := range names {
		certificate, err := os.ReadFile(tree.Path(name))
		if err != nil {
			return nil, fmt.Errorf("reading the certificate %s: %w", name, err)
		}
		bundle.Write(bytes.TrimSpace(certificate))
		bundle.WriteByte('\n')
	}
	return bundle.Bytes(), nil
}

func copyFiles(root *rootfs.FS, tree debian.Tree, patterns []string) error {
	for _, pattern := range patterns {
		names, err := tree.Glob(pattern)
		if err != nil {
			return err
		}
		if err := tree.Copy(root, names...); err != nil {
			return err
		}
	}
	return nil
}

// flock holds a lock in test pods. Debian's busybox lacks it.
const flock = "/usr/bin/flock"

// toolsParts are a shell and its tools, for pods of tests.
func toolsParts(ctx context.Context, b builder) ([]part, error) {
	tree, err := treeOf(ctx, b.cache, "test-tools")
	if err != nil {
		return nil, err
	}
	layer := func() (*rootfs.FS, error) {
		root := newBase("tools:x:1000:1000:tools:/:/bin/sh", "tools:x:1000:")
		if err := tree.CopyBusybox(ctx, root); err != nil {
			return nil, err
		}
		return root, tree.Copy(root, flock)
	}
	return []part{{key: tree.Key + " " + flock, make: layer}}, nil
}

// diskOf builds a containerDisk of a test guest.
func diskOf(flavor guest.Flavor) func(context.Context, builder) ([]part, error) {
	return guestParts(flavor, func(root *rootfs.FS, files guest.Files) error {
		const disk = "/disk/guest.qcow2"
		if err := root.Copy(disk, files.Disk); err != nil {
			return err
		}
		root.Own("/disk", qemuID, qemuID)
		root.Own(disk, qemuID, qemuID)
		return nil
	})
}

// kernelOf builds an image for kernelBoot of a test guest.
func kernelOf(flavor guest.Flavor) func(context.Context, builder) ([]part, error) {
	return guestParts(flavor, func(root *rootfs.FS, files guest.Files) error {
		if err := root.Copy("/boot/vmlinuz", files.Kernel); err != nil {
			return err
		}
		return root.Copy("/boot/initrd.img", files.Initrd)
	})
}

func guestParts(flavor guest.Flavor, fill func(*rootfs.FS, guest.Files) error) func(context.Context, builder) ([]part, error) {
	return func(ctx context.Context, b builder) ([]part, error) {
		files, err := guest.Build(ctx, b.cache, flavor)
		if err != nil {
			return nil, err
		}
		layer := func() (*rootfs.FS, error) {
			root := rootfs.New()
			return root, fill(root, files)
		}
		return []part{{key: files.Kernel, make: layer}}, nil
	}
}

func listOf(image string) func() ([]string, error) {
	return func() ([]string, error) { return readList(image + "/packages.txt") }
}

func packagesOf(flavor guest.Flavor) func() ([]string, error) {
	return func() ([]string, error) { return guest.Packages(flavor) }
}

// treeOf returns the unpacked packages of an image's list.
func treeOf(ctx context.Context, cache, image string) (debian.Tree, error) {
	packages, err := listOf(image)()
	if err != nil {
		return debian.Tree{}, err
	}
	return debian.Extract(ctx, cache, packages)
}

// readList reads one of the embedded lists.
func readList(name string) ([]string, error) {
	data, err := fs.ReadFile(lists.Lists, name)
	if err != nil {
		return nil, fmt.Errorf("reading the list %s: %w", name, err)
	}
	return debian.ParseList(string(data)), nil
}
