package guest

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

// programs are copied from the Debian packages with their libraries.
var programs = []string{
	"/usr/sbin/dropbear",
	"/usr/lib/openssh/sftp-server",
	"/usr/sbin/qemu-ga",
	"/sbin/mke2fs",
}

// guestdNames are guestd's command names.
var guestdNames = []string{
	"/init", "/sbin/acpid", "/sbin/modprobe", "/sbin/shutdown", "/sbin/chpasswd",
	"/bin/guestinfo", "/bin/disksoak", "/bin/diskjournal", "/bin/diskcount", "/bin/tpmsend",
	"/bin/tpmkey", "/bin/tpmseal", "/bin/tpmunseal", "/bin/panic",
}

// The initramfs is not compressed: in an emulated guest SYSLINUX loads it faster than the kernel would decompress
// half of it.
func writeInitrd(ctx context.Context, to string, from parts) error {
	root := rootfs.New()
	addFolders(root)
	for _, add := range []func(context.Context, *rootfs.FS, parts) error{addSkeleton, addPrograms, addModules} {
		if err := add(ctx, root, from); err != nil {
			return err
		}
	}
	file, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("making the initramfs: %w", err)
	}
	defer func() { _ = file.Close() }()
	buffered := bufio.NewWriter(file)
	if err := root.WriteCPIO(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	return file.Close()
}

func addFolders(root *rootfs.FS) {
	for _, name := range []string{"/dev", "/proc", "/sys", "/run", "/mnt", "/var/log", "/srv/www", "/etc/dropbear"} {
		root.Dir(name, 0o755)
	}
	root.Dir("/root", 0o700)
	root.Dir("/tmp", 0o777|fs.ModeSticky)
	root.Dir("/home/guest", 0o755)
	root.Own("/home/guest", 1000, 1000)
	root.Symlink("/var/run", "/run")
	// The kernel opens its console before anybody could mount /dev.
	root.CharDevice("/dev/console", 0o600, 5, 1)
	root.CharDevice("/dev/null", 0o666, 1, 3)
}

func addSkeleton(_ context.Context, root *rootfs.FS, _ parts) error {
	const top = "skeleton"
	return fs.WalkDir(source, top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(source, path)
		if err != nil {
			return fmt.Errorf("reading the guest's %s: %w", path, err)
		}
		// Embedding loses permissions; a script's first line shows it.
		perm := fs.FileMode(0o644)
		if strings.HasPrefix(string(data), "#!") {
			perm = 0o755
		}
		name := strings.TrimPrefix(path, top)
		if name == "/etc/shadow" {
			perm = 0o600
		}
		root.File(name, perm, data)
		return nil
	})
}

func addPrograms(ctx context.Context, root *rootfs.FS, from parts) error {
	if err := root.Copy("/sbin/guestd", from.guestd); err != nil {
		return err
	}
	if err := from.tree.CopyBusybox(ctx, root); err != nil {
		return err
	}
	for _, name := range guestdNames {
		root.Symlink(name, "/sbin/guestd")
	}
	if err := from.tree.Copy(root, programs...); err != nil {
		return err
	}
	root.Symlink("/usr/lib/sftp-server", "/usr/lib/openssh/sftp-server")
	root.Symlink("/sbin/mkfs.ext4", "mke2fs")
	root.Symlink("/sbin/mkfs.ext2", "mke2fs")
	return nil
}

func addModules(ctx context.Context, root *rootfs.FS, from parts) error {
	if from.flavor == Lean {
		return nil
	}
	found, err := from.tree.Glob("/lib/modules/*")
	if err != nil {
		return err
	}
	folder := found[0]
	list, err := fs.ReadFile(source, "modules.txt")
	if err != nil {
		return fmt.Errorf("reading the guest's list of kernel modules: %w", err)
	}
	set, err := chooseModules(ctx, from.tree.Path(folder), debian.ParseList(string(list)))
	if err != nil {
		return err
	}
	for _, module := range set.chosen {
		root.File(filepath.Join(folder, module.path), 0o644, module.data)
	}
	root.File(folder+"/modules.dep", 0o644, set.dep())
	root.File(folder+"/modules.alias", 0o644, set.alias())
	return nil
}

func readLines(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(data)), nil
}
