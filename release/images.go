package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	lists "drydock.dev/drydock/images"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/test/guest"
)

type image struct {
	// program is Drydock's program in it.
	program string
	// guest is the flavor of the guest whose disk or kernel it contains.
	guest guest.Flavor
	// lists is the folder of its lists of packages and files, if not the program's name.
	lists string
	// hasDisk means that it contains the disk of a machine, whose files are invisible in the image.
	hasDisk bool
	// alsoFrom are packages whose files are in it under other names.
	alsoFrom []string
}

var images = map[string]image{
	"virt":              {program: "virt", alsoFrom: []string{"ca-certificates"}},
	"virt-launcher":     {program: "virt-launcher"},
	"virt-importer":     {program: "virt-importer", alsoFrom: []string{"ca-certificates"}},
	"libguestfs-tools":  {lists: "libguestfs-tools", hasDisk: true},
	"test-guest":        {guest: guest.Lean, hasDisk: true},
	"test-guest-kernel": {guest: guest.Lean, hasDisk: true},
	"test-guest-full":   {guest: guest.Full, hasDisk: true},
}

func imageNames() []string { return slices.Sorted(maps.Keys(images)) }

// contents returns the Debian packages with files in an image. For an image with a disk, these are
// all packages that it is made from.
func (i image) contents(cache, archive string) ([]debian.Package, error) {
	names, err := i.packages()
	if err != nil {
		return nil, err
	}
	tree, err := debian.Extract(context.Background(), cache, names)
	if err != nil {
		return nil, err
	}
	contents, err := tree.Contents()
	if err != nil || i.hasDisk {
		return contents.Packages, err
	}
	files, err := filesOf(archive)
	if err != nil {
		return nil, err
	}
	owners := map[debian.Package]bool{}
	for _, name := range files {
		if p, ok := contents.Owner(name); ok {
			owners[p] = true
		}
	}
	found := slices.SortedFunc(maps.Keys(owners), func(a, b debian.Package) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range contents.Packages {
		if slices.Contains(i.alsoFrom, p.Name) && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

func (i image) packages() ([]string, error) {
	if i.guest != "" {
		return guest.Packages(i.guest)
	}
	text, err := fs.ReadFile(lists.Lists, cmp.Or(i.lists, i.program)+"/packages.txt")
	if err != nil {
		return nil, fmt.Errorf("reading the list of packages: %w", err)
	}
	return debian.ParseList(string(text)), nil
}

// The layers are not compressed.
func filesOf(archive string) ([]string, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var files []string
	outer := tar.NewReader(file)
	for {
		header, err := outer.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", archive, err)
		}
		if !strings.HasPrefix(header.Name, "blobs/") {
			continue
		}
		// Other blobs are JSON and fail to parse as tar.
		names, err := namesIn(tar.NewReader(outer))
		if err != nil && len(names) > 0 {
			return nil, fmt.Errorf("reading a layer of %s: %w", archive, err)
		}
		files = append(files, names...)
	}
}

func namesIn(layer *tar.Reader) ([]string, error) {
	var names []string
	for {
		header, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		if header.Typeflag != tar.TypeDir {
			names = append(names, header.Name)
		}
	}
}
