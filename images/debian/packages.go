package debian

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// noteContents is run by mmdebstrap's shell after unpacking, before the packages are removed. It
// records packages and files, because dpkg's database is empty without an installation.
const noteContents = `for deb in "$1"/var/cache/apt/archives/*.deb; do
  dpkg-deb --show --showformat 'package ${Package} ${Version} ${Architecture}\n' "$deb" &&
  dpkg-deb --fsys-tarfile "$deb" | tar --list || exit
done > "$1"/var/lib/dpkg/unpacked`

const contentsFile = "/var/lib/dpkg/unpacked"

// Package is Debian's binary package.
type Package struct{ Name, Version, Architecture string }

// Contents has a tree's packages and the owner of each file.
type Contents struct {
	// Packages are sorted by name.
	Packages []Package
	owners   map[string]Package
}

// Contents reads the records of noteContents.
func (t Tree) Contents() (Contents, error) {
	file, err := os.Open(t.Path(contentsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Contents{}, fmt.Errorf("looking for the packages of %s: the tree was made without a note of them; remove it, so that it is made anew", t.Root)
	}
	if err != nil {
		return Contents{}, fmt.Errorf("reading the packages of %s: %w", t.Root, err)
	}
	defer func() { _ = file.Close() }()
	c := Contents{owners: map[string]Package{}}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if err := c.read(lines.Text()); err != nil {
			return Contents{}, fmt.Errorf("reading the packages of %s: %w", t.Root, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Contents{}, fmt.Errorf("reading the packages of %s: %w", t.Root, err)
	}
	slices.SortFunc(c.Packages, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
	return c, nil
}

// A line is a package, or a file of the last one.
func (c *Contents) read(line string) error {
	if strings.HasPrefix(line, "package ") {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return fmt.Errorf("%q has not name, version and architecture", line)
		}
		c.Packages = append(c.Packages, Package{Name: fields[1], Version: fields[2], Architecture: fields[3]})
		return nil
	}
	if len(c.Packages) == 0 {
		return fmt.Errorf("the file %q is of no package", line)
	}
	if !strings.HasSuffix(line, "/") {
		c.owners[plain(line)] = c.Packages[len(c.Packages)-1]
	}
	return nil
}

// Owner returns the package of a file.
func (c Contents) Owner(file string) (Package, bool) {
	p, ok := c.owners[plain(file)]
	return p, ok
}

// /lib and /usr/lib are one folder.
func plain(file string) string {
	file = strings.TrimPrefix(strings.TrimPrefix(file, "."), "/")
	return strings.TrimPrefix(file, "usr/")
}
