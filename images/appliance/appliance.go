// Package appliance makes the small machine in which libguestfs opens disks: a kernel, an initramfs and a disk, as
// libguestfs calls a fixed appliance. libguestfs would make it itself, on a machine that has all the packages installed;
// this one is made of packages that are only unpacked, without a privilege.
//
// It owns what is in the machine. The tools outside of it are in the image's own lists (images/libguestfs-tools).
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

// uuid is of the disk's file system: the kernel's command line has it, since the disk is one of many.
const uuid = "d7d0c000-0001-4000-8000-000000000475"

// diskSize is the disk's, most of which is a hole: room for what libguestfs writes into its machine, which is gone at
// its end.
const diskSize = "288M"

// Files are the parts of the machine.
type Files struct{ Kernel, Initrd, Disk string }

// source is this package itself: what is made changes when it does.
//
//go:embed *.go init modules.txt
var source embed.FS

// Build makes the machine below cache out of the packages in tree, or returns the one that is there.
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

// Key sums up all that the machine is made of.
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

// assemble makes the machine's files; root is a folder to put together in what is on its disk.
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

// run executes a program that makes a part.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "E2FSPROGS_FAKE_TIME=946684800")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making libguestfs's machine by %s: %w\n%s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
