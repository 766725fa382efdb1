package appliance

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

// recipes is libguestfs's folder with the description of its machine: lists of packages, excluded files, and
// archives of files outside packages.
const recipes = "/usr/lib/x86_64-linux-gnu/guestfs/supermin.d"

// also are needed packages that the recipes don't name: the package manager takes some for granted, and others have
// data of libraries.
var also = []string{"augeas-lenses", "debianutils", "hostname", "init-system-helpers", "libc-bin", "libmagic-mgc", "xfsprogs", "libdevmapper1.02.1", "dmsetup"}

// left are packages of the recipes that only serve to create guests, which this machine does not.
var left = []string{"debootstrap", "grub2-common", "extlinux", "syslinux", "qemu-utils", "binutils", "openssh-client", "sleuthkit"}

func writeRoot(ctx context.Context, to string, tree debian.Tree) error {
	root := rootfs.New()
	if tree.Merged() {
		root.MergeUsr()
	}
	for _, name := range []string{"/dev", "/proc", "/sys", "/run", "/sysroot", "/root", "/var/log", "/var/lib", "/etc/lvm"} {
		root.Dir(name, 0o755)
	}
	for _, name := range []string{"/tmp", "/var/tmp"} {
		root.Dir(name, 0o777|fs.ModeSticky)
	}
	if err := addPackages(root, tree); err != nil {
		return err
	}
	if err := addArchives(root, tree); err != nil {
		return err
	}
	root.File("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/bash\n"))
	root.File("/etc/group", 0o644, []byte("root:x:0:\ntty:x:5:\ndisk:x:6:\nkmem:x:15:\ndialout:x:20:\ncdrom:x:24:\n"))
	// Debian's alternatives are not set up without maintainer scripts.
	root.Symlink("/usr/bin/awk", "gawk")
	version, err := addModules(ctx, root, tree)
	if err != nil {
		return err
	}
	if err := root.WriteFolder(to); err != nil {
		return err
	}
	return run(ctx, "depmod", "-b", to, version)
}

// addPackages adds the files of the packages and the libraries of their programs.
func addPackages(root *rootfs.FS, tree debian.Tree) error {
	contents, err := tree.Contents()
	if err != nil {
		return err
	}
	packages, err := listed(tree)
	if err != nil {
		return err
	}
	var names []string
	err = filepath.WalkDir(tree.Root, func(place string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(place, tree.Root)
		owner, has := contents.Owner(name)
		switch {
		case !has || !packages[owner.Name] || excluded(name):
			return nil
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(place)
			root.Symlink(name, target)
			return err
		case entry.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("gathering the files of libguestfs's machine: %w", err)
	}
	daemon, err := guestfsd(tree)
	if err != nil {
		return err
	}
	if err := tree.Copy(root, names...); err != nil {
		return err
	}
	libraries, err := tree.LibrariesOf(daemon)
	if err != nil {
		return err
	}
	return tree.Copy(root, libraries...)
}

func listed(tree debian.Tree) (map[string]bool, error) {
	lists, err := tree.Glob(recipes + "/packages*")
	if err != nil {
		return nil, err
	}
	packages := map[string]bool{}
	for _, list := range lists {
		text, err := os.ReadFile(tree.Path(list))
		if err != nil {
			return nil, fmt.Errorf("reading the packages of libguestfs's machine: %w", err)
		}
		for _, name := range debian.ParseList(string(text)) {
			packages[name] = !slices.Contains(left, name)
		}
	}
	for _, name := range also {
		packages[name] = true
	}
	return packages, nil
}

// Documentation and boot files are useless in the machine.
func excluded(name string) bool {
	for _, prefix := range []string{
		"/boot/", "/lib/modules/", "/usr/lib/modules/", "/usr/share/doc", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/i18n/",
		"/usr/share/lintian/", "/usr/share/bug/", "/usr/share/bash-completion/", "/usr/share/zsh/", "/usr/share/perl", "/usr/lib/python",
		"/usr/share/initramfs-tools/", "/usr/share/zoneinfo/", "/lib/udev/hwdb.d/", "/usr/lib/udev/hwdb.d/", "/usr/share/gcc", "/usr/include/", "/usr/lib/x86_64-linux-gnu/tc/", "/usr/lib/x86_64-linux-gnu/gconv/",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// The archives have libguestfs's daemon, its init, and settings.
func addArchives(root *rootfs.FS, tree debian.Tree) error {
	archives, err := tree.Glob(recipes + "/*.tar.gz")
	if err != nil {
		return err
	}
	for _, archive := range archives {
		err := eachEntry(tree.Path(archive), func(header *tar.Header, data []byte) error {
			name, mode := path.Clean("/"+header.Name), header.FileInfo().Mode()
			switch header.Typeflag {
			case tar.TypeReg:
				root.File(name, mode.Perm(), data)
			case tar.TypeSymlink:
				root.Symlink(name, header.Linkname)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
	}
	return nil
}

func guestfsd(tree debian.Tree) ([]byte, error) {
	var daemon []byte
	err := eachEntry(tree.Path(recipes+"/daemon.tar.gz"), func(header *tar.Header, data []byte) error {
		if path.Base(header.Name) == "guestfsd" {
			daemon = data
		}
		return nil
	})
	if err == nil && daemon == nil {
		err = errors.New("it has no guestfsd")
	}
	if err != nil {
		return nil, fmt.Errorf("reading libguestfs's daemon: %w", err)
	}
	return daemon, nil
}

func eachEntry(archive string, do func(*tar.Header, []byte) error) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	entries := tar.NewReader(unpacked)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		if err := do(header, data); err != nil {
			return err
		}
	}
}

func addModules(ctx context.Context, root *rootfs.FS, tree debian.Tree) (string, error) {
	folders, err := tree.Glob("/lib/modules/*")
	if err != nil {
		return "", err
	}
	folder := folders[0]
	list, err := fs.ReadFile(source, "modules.txt")
	if err != nil {
		return "", fmt.Errorf("reading the list of modules: %w", err)
	}
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := root.Copy(path.Join(folder, name), tree.Path(path.Join(folder, name))); err != nil {
			return "", err
		}
	}
	for _, name := range debian.ParseList(string(list)) {
		err := filepath.WalkDir(debian.FindModule(tree.Path(path.Join(folder, "kernel", name))), func(place string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			module, err := debian.ReadModule(ctx, place)
			root.File(debian.PlainModule(strings.TrimPrefix(place, tree.Root)), 0o644, module)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("gathering the modules in %s: %w", name, err)
		}
	}
	return path.Base(folder), nil
}
