// Package kernel builds the kernel of the test guest from Debian's source of Linux with only the options in the
// file config, all built in, so that emulated guests start quickly. It must decide nothing about the guest.
package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/images/debian"
)

// Package has the source.
const Package = "linux-source"

// recipe has the inputs beside the source.
//
//go:embed compile.go config
var recipe embed.FS

// Kernel is a built kernel.
type Kernel struct {
	File string
	// Key identifies the source's version, the configuration, and the recipe.
	Key string
}

// unusedFor is the age at which an unused kernel is removed.
const unusedFor = 30 * 24 * time.Hour

// Folder returns the user's folder of kernels, so that each is built once for all checkouts. A user without a
// cache folder has them in other.
func Folder(other string) string {
	folder, err := os.UserCacheDir()
	if err != nil {
		return other
	}
	return filepath.Join(folder, "drydock")
}

// Build makes the kernel from a tree's source, or returns the existing one with the same key. The source is
// unpacked below work. Processes build one kernel at a time.
func Build(ctx context.Context, kept, work string, tree debian.Tree) (Kernel, error) {
	archive, version, err := find(tree)
	if err != nil {
		return Kernel{}, err
	}
	key, err := buildKey(version)
	if err != nil {
		return Kernel{}, err
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("making the folder of the guest's kernels: %w", err)
	}
	folder := filepath.Join(kept, "kernel-"+key)
	built := Kernel{File: filepath.Join(folder, "vmlinuz"), Key: key}
	// An old one may be removed just now by the holder of the lock.
	if info, err := os.Stat(folder); err == nil && time.Since(info.ModTime()) < unusedFor && touch(folder) {
		return built, nil
	}
	lock, err := os.OpenFile(filepath.Join(kept, "kernel.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Kernel{}, fmt.Errorf("making the lock of the guest's kernel: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return Kernel{}, fmt.Errorf("locking the guest's kernel: %w", err)
	}
	if touch(folder) {
		return built, nil
	}
	err = debian.Whole(folder, func(made, _ string) error {
		scratch, remove, err := debian.Scratch(work, "kernel-source-")
		if err != nil {
			return fmt.Errorf("unpacking the source: %w", err)
		}
		defer remove()
		compiled := filepath.Join(scratch, filepath.Base(built.File))
		if err := compile(ctx, archive, scratch, compiled); err != nil {
			return err
		}
		return copyFile(compiled, filepath.Join(made, filepath.Base(built.File)))
	})
	if err != nil {
		return Kernel{}, fmt.Errorf("building the guest's kernel: %w", err)
	}
	return built, removeUnused(kept, time.Now())
}

// touch keeps a kernel from being removed. It returns false if there is none.
func touch(folder string) bool {
	now := time.Now()
	return os.Chtimes(folder, now, now) == nil
}

// The two places may be in different file systems.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("reading the kernel: %w", err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		return fmt.Errorf("keeping the kernel: %w", err)
	}
	return nil
}

// removeUnused removes the kernels that nobody has used lately. Another checkout may use a different one, and must not
// rebuild it each time.
func removeUnused(kept string, now time.Time) error {
	found, err := filepath.Glob(filepath.Join(kept, "kernel-????????????"))
	if err != nil {
		return fmt.Errorf("listing the guest's kernels: %w", err)
	}
	for _, folder := range found {
		if info, err := os.Stat(folder); err == nil && now.Sub(info.ModTime()) > unusedFor {
			_ = os.RemoveAll(folder) // a leftover only takes space
		}
	}
	return nil
}

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

// Comments do not count.
func buildKey(version string) (string, error) {
	code, err := fs.ReadFile(recipe, "compile.go")
	if err != nil {
		return "", fmt.Errorf("reading how the guest's kernel is built: %w", err)
	}
	options, err := fs.ReadFile(recipe, "config")
	if err != nil {
		return "", fmt.Errorf("reading the configuration of the guest's kernel: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintln(sum, version)
	writeTokens(sum, code)
	writeOptions(sum, options)
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

func writeTokens(to io.Writer, code []byte) {
	var tokens scanner.Scanner
	tokens.Init(token.NewFileSet().AddFile("compile.go", -1, len(code)), code, nil, 0)
	for {
		_, kind, text := tokens.Scan()
		if kind == token.EOF {
			return
		}
		if kind == token.SEMICOLON {
			text = "" // it may be the end of a line
		}
		fmt.Fprintln(to, kind, text)
	}
}

// An option that is off looks like a comment.
func writeOptions(to io.Writer, options []byte) {
	for line := range bytes.Lines(options) {
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("CONFIG_")) || bytes.HasPrefix(line, []byte("# CONFIG_")) {
			fmt.Fprintf(to, "%s\n", line)
		}
	}
}
