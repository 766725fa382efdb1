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

// image is an image of the release: those that Drydock needs, and the guests of the
// examples.
type image struct {
	// program is the one of Drydock's in it.
	program string
	// guest is the flavor of the guest whose disk or kernel it is.
	guest guest.Flavor
	// lists is the folder with its lists of packages and files, if that has not the program's name.
	lists string
	// hasDisk: there is the disk of a machine in it, whose files have no names in the image.
	hasDisk bool
	// alsoFrom are packages whose files are in it under no name of their own.
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

// imagePrograms are the programs that run in images only.
func imagePrograms() []string {
	var names []string
	for _, name := range imageNames() {
		if program := images[name].program; program != "" {
			names = append(names, program)
		}
	}
	return names
}

// contents returns the Debian packages that an image has files of. What is inside of a
// disk has no names here: all packages that such an image is made from count.
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
	found := owners(contents, files)
	for _, p := range contents.Packages {
		if slices.Contains(i.alsoFrom, p.Name) && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// packages are those that the image's build asks for.
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

// filesOf lists the files in the layers of an image archive, which are not compressed.
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
		// A blob that is no layer is JSON, which is no tar archive.
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
