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

// noteContents is run by mmdebstrap's shell when the packages are unpacked and not
// yet removed: dpkg's own records are empty in a tree that nothing was installed in.
const noteContents = `for deb in "$1"/var/cache/apt/archives/*.deb; do
  dpkg-deb --show --showformat 'package ${Package} ${Version} ${Architecture}\n' "$deb" &&
  dpkg-deb --fsys-tarfile "$deb" | tar --list || exit
done > "$1"/var/lib/dpkg/unpacked`

const contentsFile = "/var/lib/dpkg/unpacked"

// Package is a binary package of Debian.
type Package struct{ Name, Version, Architecture string }

// Contents says which packages a tree was made of, and which has which file.
type Contents struct {
	// Packages are in the order of their names.
	Packages []Package
	owners   map[string]Package
}

// Contents reads what was noted when the tree was made.
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

// read takes a line: a package, or a file of the package named last.
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

// Owner returns the package that has a file.
func (c Contents) Owner(file string) (Package, bool) {
	p, ok := c.owners[plain(file)]
	return p, ok
}

// plain gives the names of a file one form: /lib and /usr/lib are one folder.
func plain(file string) string {
	file = strings.TrimPrefix(strings.TrimPrefix(file, "."), "/")
	return strings.TrimPrefix(file, "usr/")
}
