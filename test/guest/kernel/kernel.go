// Package kernel builds the kernel of the test guest from Debian's source of Linux: what
// the file config asks for, and nothing else, all of it built in. It is there for one
// reason, that a guest starts quickly where it is emulated (decision 606).
//
// It decides nothing about the guest that runs it.
package kernel

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/images/debian"
)

// Package is the Debian package that has the source.
const Package = "linux-source"

// recipe is what the kernel follows from beside the source.
//
//go:embed compile.go config
var recipe embed.FS

// Kernel is a kernel that was built.
type Kernel struct {
	// File is what a boot loader starts.
	File string
	// Key names what it was made of: the source's version, the configuration, and how.
	Key string
}

// Build makes the kernel below cache, from the source in a tree of Debian packages, or
// returns the one that is there if it was made of the same things. Who comes while
// another process builds it waits for that.
func Build(ctx context.Context, cache string, tree debian.Tree) (Kernel, error) {
	archive, version, err := find(tree)
	if err != nil {
		return Kernel{}, err
	}
	key, err := buildKey(version)
	if err != nil {
		return Kernel{}, err
	}
	folder := filepath.Join(cache, "kernel-"+key)
	built := Kernel{File: filepath.Join(folder, "vmlinuz"), Key: key}
	lock, err := os.OpenFile(filepath.Join(cache, "kernel.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Kernel{}, fmt.Errorf("making the lock of the guest's kernel: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return Kernel{}, fmt.Errorf("locking the guest's kernel: %w", err)
	}
	if _, err := os.Stat(built.File); err == nil {
		return built, nil
	}
	err = debian.Whole(folder, func(made, scratch string) error {
		return compile(ctx, archive, scratch, filepath.Join(made, filepath.Base(built.File)))
	})
	if err != nil {
		return Kernel{}, fmt.Errorf("building the guest's kernel: %w", err)
	}
	return built, debian.RemoveOthers(folder, "kernel-????????????")
}

// find returns the archive with the source, and the version of the package that has it.
func find(tree debian.Tree) (archive, version string, err error) {
	found, err := tree.Glob("/usr/src/linux-source-*.tar.xz")
	if err != nil {
		return "", "", err
	}
	contents, err := tree.Contents()
	if err != nil {
		return "", "", err
	}
	owner, known := contents.Owner(found[0])
	if !known {
		return "", "", fmt.Errorf("looking for the version of %s: no Debian package has it", found[0])
	}
	return tree.Path(found[0]), owner.Version, nil
}

func buildKey(version string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, version)
	for _, name := range []string{"compile.go", "config"} {
		text, err := fs.ReadFile(recipe, name)
		if err != nil {
			return "", fmt.Errorf("reading how the guest's kernel is built: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
