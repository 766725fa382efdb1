// Package rootfs holds a file system as a list of entries and writes it in the formats of images: a
// container layer (tar), an initramfs (cpio) and a folder. The output depends only on the entries,
// to the byte: no time, owner or order comes from the building machine.
//
// It must know nothing of packages or images.
package rootfs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Merged are the folders of / that are links to folders below /usr in newer releases of Debian.
var Merged = []string{"bin", "lib", "lib64", "sbin"}

// Entry is a file, folder, link or device.
type Entry struct {
	Path         string
	Mode         fs.FileMode
	UID, GID     int
	Data         []byte
	Link         string
	Major, Minor uint32
}

// FS is a file system in memory. It adds parent folders.
type FS struct {
	entries map[string]Entry
	merged  bool
}

// New returns an empty file system.
func New() *FS { return &FS{entries: map[string]Entry{}} }

// MergeUsr makes the Merged links. Entries that are added below them from then on are placed below /usr.
func (f *FS) MergeUsr() {
	for _, name := range Merged {
		f.Dir("/usr/"+name, 0o755)
		f.Symlink("/"+name, "usr/"+name)
	}
	f.merged = true
}

func (f *FS) place(name string) string {
	name = path.Clean("/" + name)
	top, _, below := strings.Cut(name[1:], "/")
	if f.merged && below && slices.Contains(Merged, top) {
		return "/usr" + name
	}
	return name
}

// Add adds or replaces an entry.
func (f *FS) Add(entry Entry) {
	entry.Path = f.place(entry.Path)
	f.addParents(entry.Path)
	f.entries[entry.Path] = entry
}

func (f *FS) addParents(name string) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, there := f.entries[dir]; there {
			return
		}
		f.entries[dir] = Entry{Path: dir, Mode: fs.ModeDir | 0o755}
	}
}

// Dir adds a folder.
func (f *FS) Dir(name string, mode fs.FileMode) {
	f.Add(Entry{Path: name, Mode: mode | fs.ModeDir})
}

// File adds a file with content.
func (f *FS) File(name string, perm fs.FileMode, data []byte) {
	f.Add(Entry{Path: name, Mode: perm, Data: data})
}

// Symlink adds a symbolic link.
func (f *FS) Symlink(name, target string) {
	f.Add(Entry{Path: name, Mode: fs.ModeSymlink | 0o777, Link: target})
}

// CharDevice adds a character device.
func (f *FS) CharDevice(name string, perm fs.FileMode, major, minor uint32) {
	f.Add(Entry{Path: name, Mode: perm | fs.ModeDevice | fs.ModeCharDevice, Major: major, Minor: minor})
}

// Copy adds the file at source on this machine under a name, with its permissions.
func (f *FS) Copy(name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("copying %s: %w", name, err)
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("copying %s: %w", name, err)
	}
	f.File(name, info.Mode().Perm(), data)
	return nil
}

// Own sets the owner of an entry, if it exists.
func (f *FS) Own(name string, uid, gid int) {
	if entry, there := f.entries[f.place(name)]; there {
		entry.UID, entry.GID = uid, gid
		f.entries[entry.Path] = entry
	}
}

// Entries lists all entries, parents first.
func (f *FS) Entries() []Entry {
	sorted := make([]Entry, 0, len(f.entries))
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		sorted = append(sorted, f.entries[name])
	}
	return sorted
}
