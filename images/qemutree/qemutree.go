// Package qemutree makes the folder with the images' QEMU that tests and builds run on this machine: the files of the
// image virt-launcher, and programs that only tests need. So tests run the QEMU that ships, whatever the machine has.
//
// A program is started by the tree's own loader, with the tree's libraries. The loader is copied under the program's name,
// because a process has the name of the file that is executed.
package qemutree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	lists "drydock.dev/drydock/images"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

// image has most of the programs.
const image = "virt-launcher"

// more are the programs that only tests need.
var more = []string{"/usr/bin/qemu-io", "/usr/sbin/qemu-ga"}

const loader = "/lib64/ld-linux-x86-64.so.2"

// command starts a program: its folder and name, the folders of its libraries, and its first arguments. It works in whatever
// folder the tree is.
const command = `#!/bin/sh
tree=${0%%/*}/..
export QEMU_MODULE_DIR="$tree/usr/lib/x86_64-linux-gnu/qemu"
exec "$tree/loader/%[2]s" --inhibit-cache --library-path "%[3]s" --argv0 "$0" "$tree%[1]s/%[2]s" %[4]s"$@"
`

// first are the first arguments of programs.
var first = map[string]string{
	"qemu-system-x86_64": `-L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios" `,
}

// others are programs of the image that are not QEMU's: on the PATH they would stand before the machine's own.
var others = []string{"/bin/cat", "/usr/bin/cat"}

// Make returns the tree, which it makes below cache unless it exists. The programs are in its folder bin.
func Make(ctx context.Context, cache string) (string, error) {
	packages, err := readList("packages.txt")
	if err != nil {
		return "", err
	}
	files, err := readList("files.txt")
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(append(files, more...), func(file string) bool { return slices.Contains(others, file) })
	tree, err := debian.Extract(ctx, cache, packages)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, tree.Key, command, first, files)
	folder := filepath.Join(cache, "qemu-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	root, err := gather(tree, files)
	if err != nil {
		return "", fmt.Errorf("gathering QEMU's files: %w", err)
	}
	return folder, debian.Whole(folder, func(made, _ string) error { return root.WriteFolder(made) })
}

func readList(name string) ([]string, error) {
	text, err := fs.ReadFile(lists.Lists, image+"/"+name)
	if err != nil {
		return nil, fmt.Errorf("reading the list %s of %s: %w", name, image, err)
	}
	return debian.ParseList(string(text)), nil
}

func gather(tree debian.Tree, patterns []string) (*rootfs.FS, error) {
	var files []string
	for _, pattern := range patterns {
		found, err := tree.Glob(pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	root := rootfs.New()
	if err := tree.Copy(root, files...); err != nil {
		return nil, err
	}
	from, err := tree.Real(loader)
	if err != nil {
		return nil, err
	}
	search := searchPath(root)
	for _, file := range files {
		folder, name := path.Split(file)
		folder = path.Clean(folder)
		if folder != "/usr/bin" && folder != "/usr/sbin" && folder != "/usr/libexec" {
			continue
		}
		root.File("/bin/"+name, 0o755, fmt.Appendf(nil, command, folder, name, search, first[name]))
		if err := root.Copy("/loader/"+name, from); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// searchPath lists the folders that have libraries, for the loader.
func searchPath(root *rootfs.FS) string {
	folders := map[string]bool{}
	for _, entry := range root.Entries() {
		if strings.Contains(path.Base(entry.Path), ".so.") {
			folders["$tree"+path.Dir(entry.Path)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(folders)), ":")
}

// Link makes a link to a tree, in place of one to another tree, and removes the other trees.
func Link(tree, link string) error {
	parent := filepath.Dir(link)
	target, err := filepath.Rel(parent, tree)
	if err != nil {
		return fmt.Errorf("linking QEMU's files: %w", err)
	}
	scratch, remove, err := debian.Scratch(parent, "linking-")
	if err != nil {
		return fmt.Errorf("linking QEMU's files: %w", err)
	}
	defer remove()
	made := filepath.Join(scratch, "link")
	if err := os.Symlink(target, made); err != nil {
		return fmt.Errorf("linking QEMU's files: %w", err)
	}
	if err := os.Rename(made, link); err != nil {
		return fmt.Errorf("linking QEMU's files: %w", err)
	}
	return debian.RemoveOthers(tree, "qemu-*")
}
