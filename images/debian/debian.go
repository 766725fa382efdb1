// Package debian makes folders out of Debian packages: the packages named and
// all that they depend on, downloaded, checked by apt and unpacked, without a
// maintainer script run and without a change to the machine it runs on. It also
// knows which shared libraries a program in such a folder needs, so that an
// image can carry the program and not the distribution.
//
// It decides nothing about what goes into an image; its callers pick the files.
package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"drydock.dev/drydock/images/rootfs"
)

// Suite is the Debian release that everything is made of. It is named here and
// nowhere else: QEMU's version, and with it the machine types that guests pin,
// follow from it.
const Suite = "bookworm"

// Tree is a folder of unpacked packages.
type Tree struct {
	// Root is the folder that stands for /.
	Root string
	// Key names what the tree was made of: the suite and the packages asked for.
	Key string
}

// Extract returns the tree with the packages and their dependencies. It makes the
// tree below cache when that has none for this list of packages, which needs the
// network and some seconds; otherwise it is at hand at once.
func Extract(ctx context.Context, cache string, packages []string) (Tree, error) {
	key := treeKey(packages)
	tree := Tree{Root: filepath.Join(cache, "debian-"+key), Key: key}
	if _, err := os.Stat(tree.Root); err == nil {
		return tree, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Tree{}, fmt.Errorf("making the package cache: %w", err)
	}
	if err := Whole(tree.Root, func(made, _ string) error { return unpack(ctx, made, packages) }); err != nil {
		return Tree{}, err
	}
	return tree, nil
}

// unpack has mmdebstrap download and unpack; the variant 'extract' runs no
// maintainer script, so that neither a chroot nor a mount is needed.
func unpack(ctx context.Context, root string, packages []string) error {
	cmd := exec.CommandContext(ctx, "mmdebstrap",
		"--mode=chrootless", "--variant=extract", "--format=directory", "--extract-hook="+noteContents,
		"--include="+strings.Join(packages, ","), Suite, root)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("unpacking Debian packages: mmdebstrap is not installed (apt-get install mmdebstrap)")
	}
	if err != nil {
		return fmt.Errorf("unpacking %s: %w\n%s", strings.Join(packages, ", "), err, bytes.TrimSpace(out))
	}
	return nil
}

func treeKey(packages []string) string {
	sorted := slices.Clone(packages)
	slices.Sort(sorted)
	sum := sha256.Sum256([]byte(noteContents + "\n" + Suite + "\n" + strings.Join(slices.Compact(sorted), "\n")))
	return hex.EncodeToString(sum[:6])
}

// CopyKernel copies the one kernel of the tree.
func (t Tree) CopyKernel(to string) error {
	kernels, err := t.Glob("/boot/vmlinuz-*")
	if err != nil {
		return err
	}
	kernel, err := os.ReadFile(t.Path(kernels[0]))
	if err != nil {
		return fmt.Errorf("reading the kernel: %w", err)
	}
	if err := os.WriteFile(to, kernel, 0o644); err != nil {
		return fmt.Errorf("writing the kernel: %w", err)
	}
	return nil
}

// Path gives the place of a file of the tree on this machine, as it is: a link
// is not followed.
func (t Tree) Path(name string) string { return filepath.Join(t.Root, name) }

// Real gives the place on this machine of the file that a name of the tree stands
// for. Links are followed inside the tree; absolute ones, which Debian uses for
// the loader, would lead the operating system to the files of this machine.
func (t Tree) Real(name string) (string, error) {
	const maxLinks = 10
	current := filepath.Clean("/" + name)
	for range maxLinks {
		target, err := os.Readlink(t.Path(current))
		if errors.Is(err, syscall.EINVAL) {
			return t.Path(current), nil
		}
		if err != nil {
			return "", fmt.Errorf("looking for %s in the Debian packages: %w", name, err)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(current), target)
		}
		current = filepath.Clean(target)
	}
	return "", fmt.Errorf("looking for %s in the Debian packages: more than %d links", name, maxLinks)
}

// Glob returns the files of the tree that match the pattern, as absolute paths
// inside it. A pattern without a match is an error: Debian moved the file, and
// an image that silently lacks it fails much later.
func (t Tree) Glob(pattern string) ([]string, error) {
	matches, err := filepath.Glob(t.Path(pattern))
	if err != nil {
		return nil, fmt.Errorf("reading the pattern %s: %w", pattern, err)
	}
	if len(matches) == 0 {
		return nil, fmt.Errorf("looking for %s in the Debian packages: no such file", pattern)
	}
	for i, match := range matches {
		matches[i] = strings.TrimPrefix(match, t.Root)
	}
	return matches, nil
}

// Copy adds files of the tree to a file system, with the libraries that the
// programs among them need. A link becomes the file that it leads to.
func (t Tree) Copy(root *rootfs.FS, names ...string) error {
	var programs []string
	for _, name := range names {
		program, err := t.isProgram(name)
		if err != nil {
			return err
		}
		if program {
			programs = append(programs, name)
		}
	}
	libraries, err := t.Libraries(programs...)
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(names, libraries) {
		place, err := t.Real(name)
		if err != nil {
			return err
		}
		if err := root.Copy(name, place); err != nil {
			return err
		}
	}
	return nil
}

// CopyBusybox adds busybox under all the names that it answers to.
func (t Tree) CopyBusybox(ctx context.Context, root *rootfs.FS) error {
	const name = "/bin/busybox"
	if err := t.Copy(root, name); err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, t.Path(name), "--list-full").Output()
	if err != nil {
		return fmt.Errorf("asking busybox for its commands: %w", err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if "/"+applet != name {
			root.Symlink(applet, name)
		}
	}
	return nil
}

// ParseList reads a list of names, one a line, with comments after #.
func ParseList(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		names = append(names, strings.Fields(line)...)
	}
	return names
}
