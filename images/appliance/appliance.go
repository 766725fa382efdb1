// Package appliance builds the small machine in which libguestfs opens disks: a kernel, an initramfs and a disk,
// libguestfs's "fixed appliance". libguestfs would need all packages installed; this package only unpacks them
// and needs no privileges.
//
// It owns the machine's content. The tools outside are in the image's lists (images/libguestfs-tools), which it
// must not know.
package appliance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"drydock.dev/drydock/images/debian"
)

// uuid is the UUID of the disk's file system. The kernel's command line selects the root disk by it.
const uuid = "d7d0c000-0001-4000-8000-000000000475"

// diskSize is the size of the mostly sparse disk. It leaves room for the temporary files of libguestfs.
const diskSize = "320M"

// Files are the machine's parts.
type Files struct{ Kernel, Initrd, Disk string }

// source is this package's source, as part of the key: a change of it rebuilds the machine.
//
//go:embed *.go init modules.txt
var source embed.FS

// Build builds the machine below cache from the packages in tree, or returns the existing one.
func Build(ctx context.Context, cache string, tree debian.Tree) (Files, error) {
	key, err := Key(tree)
	if err != nil {
		return Files{}, err
	}
	folder := filepath.Join(cache, "appliance-"+key)
	if _, err := os.Stat(folder); err == nil {
		return filesIn(folder), nil
	}
	err = debian.Whole(folder, func(made, scratch string) error {
		return assemble(ctx, filesIn(made), filepath.Join(scratch, "root"), tree)
	})
	if err != nil {
		return Files{}, fmt.Errorf("making libguestfs's machine: %w", err)
	}
	if err := debian.RemoveOthers(folder, "appliance-*"); err != nil {
		return Files{}, err
	}
	return filesIn(folder), nil
}

func filesIn(folder string) Files {
	return Files{Kernel: filepath.Join(folder, "kernel"), Initrd: filepath.Join(folder, "initrd"), Disk: filepath.Join(folder, "root")}
}

// Key is a hash of everything that determines the machine.
func Key(tree debian.Tree) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, tree.Key)
	entries, err := fs.ReadDir(source, ".")
	if err != nil {
		return "", fmt.Errorf("reading how libguestfs's machine is made: %w", err)
	}
	for _, entry := range entries {
		data, err := fs.ReadFile(source, entry.Name())
		if err != nil {
			return "", fmt.Errorf("reading how libguestfs's machine is made: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n", entry.Name(), len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

func assemble(ctx context.Context, to Files, root string, tree debian.Tree) error {
	if err := tree.CopyKernel(to.Kernel); err != nil {
		return err
	}
	if err := writeRoot(ctx, root, tree); err != nil {
		return err
	}
	if err := writeInitrd(to.Initrd, root, tree); err != nil {
		return err
	}
	return run(ctx, "mke2fs", "-q", "-t", "ext2", "-F", "-U", uuid, "-m", "0", "-E", "root_owner=0:0,hash_seed="+uuid, "-d", root, to.Disk, diskSize)
}

func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "E2FSPROGS_FAKE_TIME=946684800")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making libguestfs's machine by %s: %w\n%s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
