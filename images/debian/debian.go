// Package debian unpacks Debian packages and their dependencies into folders. apt downloads and verifies them; no
// maintainer script runs and the machine is not changed. It also finds a program's shared libraries there, so
// that an image need not contain the distribution.
//
// It must not decide the content of an image.
package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"drydock.dev/drydock/images/rootfs"
)

// Suite is the only definition of the Debian release. It determines QEMU's version, and the machine types that
// guests pin.
const Suite = "trixie"

// Tree is a folder of unpacked packages.
type Tree struct {
	// Root stands for /.
	Root string
	// Key identifies the packages and their versions.
	Key string
}

// Extract returns the tree with the packages and their dependencies. Unless it exists below cache,
// Extract creates it, which needs the network and some seconds.
func Extract(ctx context.Context, cache string, packages []string) (Tree, error) {
	tree := Tree{Root: filepath.Join(cache, "debian-"+treeKey(packages))}
	if _, err := os.Stat(tree.Root); err == nil {
		return tree.identified()
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Tree{}, fmt.Errorf("making the package cache: %w", err)
	}
	err := Whole(tree.Root, func(made, _ string) error {
		if err := unpack(ctx, made, packages); err != nil {
			return err
		}
		return mergeUsr(made)
	})
	if err != nil {
		return Tree{}, err
	}
	return tree.identified()
}

// identified sets the key: the same list has other versions after an update.
func (t Tree) identified() (Tree, error) {
	noted, err := os.ReadFile(t.Path(contentsFile))
	if err != nil {
		return Tree{}, fmt.Errorf("reading the packages of %s: %w", t.Root, err)
	}
	sum := sha256.New()
	fmt.Fprintln(sum, Suite)
	sum.Write(noted)
	t.Key = hex.EncodeToString(sum.Sum(nil)[:6])
	return t, nil
}

// mmdebstrap's variant 'extract' runs no maintainer scripts, so it needs neither chroot nor mounts.
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

// mergeUsr links /bin and its like to their folders below /usr, unless a package has them. Debian's installer makes these
// links.
func mergeUsr(root string) error {
	for _, name := range rootfs.Merged {
		target := filepath.Join("usr", name)
		if _, err := os.Stat(filepath.Join(root, target)); err != nil {
			continue
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("linking /%s to /%s: %w", name, target, err)
		}
	}
	return nil
}

// Merged reports whether the tree has its libraries below /usr only.
func (t Tree) Merged() bool {
	target, err := os.Readlink(t.Path("lib"))
	return err == nil && target == "usr/lib"
}

func treeKey(packages []string) string {
	sorted := slices.Clone(packages)
	slices.Sort(sorted)
	sum := sha256.Sum256([]byte(noteContents + "\n" + Suite + "\n" + strings.Join(slices.Compact(sorted), "\n")))
	return hex.EncodeToString(sum[:6])
}

// CopyKernel copies the tree's only kernel.
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

// Path returns the path of a tree's file on this machine, without following links.
func (t Tree) Path(name string) string { return filepath.Join(t.Root, name) }

// Real returns the path of a tree's file on this machine. It follows links inside the tree:
// absolute ones, as Debian uses for the loader, would otherwise lead to this machine's files.
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

// Glob returns absolute paths inside the tree. No match is an error: Debian has moved the file, and an image
// without it would fail much later.
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

// Copy adds files, with the libraries of programs. It resolves links.
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

// CopyBusybox adds busybox with links for all its commands.
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

// ParseList parses one name per line, with comments after #.
func ParseList(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		names = append(names, strings.Fields(line)...)
	}
	return names
}
