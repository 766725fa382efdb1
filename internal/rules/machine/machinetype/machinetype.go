// Package machinetype knows the machine types of virt-launcher's QEMU, and chooses one of them for a VM that names
// the type of another build of QEMU (decision 501). It must not know the devices of a machine; package machine does.
package machinetype

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Default is the machine type of a new VM that names none. It is versioned, so that an upgrade of QEMU changes no
// guest's hardware.
const Default = "pc-q35-10.0"

// OfOtherBuilds is the machine type for those of other builds. It stays when Default changes: a VM that names such a
// type keeps its hardware.
const OfOtherBuilds = "pc-q35-7.2"

// versions are QEMU's versions of the q35 machine; a test compares them with QEMU.
var versions = []string{
	"10.0", "9.2", "9.1", "9.0", "8.2", "8.1", "8.0", "7.2", "7.1", "7.0", "6.2", "6.1", "6.0", "5.2", "5.1", "5.0", "4.2", "4.1", "4.0.1", "4.0", "3.1", "3.0",
	"2.12", "2.11", "2.10", "2.9", "2.8", "2.7", "2.6", "2.5", "2.4",
}

// inEveryRelease is the first of versions that the launchers of all supported releases have.
const inEveryRelease = "7.2"

// InEveryRelease reports whether the machine type is also in the release before, whose launchers have QEMU 7.2: every node
// has it while a cluster is updated. The newest type is not.
func InEveryRelease(name string) bool {
	return slices.Index(versions, strings.TrimPrefix(name, versionPrefix)) >= slices.Index(versions, inEveryRelease)
}

// Newest is the alias of QEMU's newest version.
const Newest = "q35"

const (
	versionPrefix = "pc-q35-"
	maxLength     = 64
)

// Known reports whether the machine type is q35 or one of QEMU's versions of it, whose devices have stable addresses.
func Known(name string) bool {
	version, versioned := strings.CutPrefix(name, versionPrefix)
	return name == Newest || versioned && slices.Contains(versions, version)
}

// Foreign reports whether name may be another build's version of the q35 machine, such as pc-q35-rhel9.4.0.
func Foreign(name string) bool {
	version, versioned := strings.CutPrefix(name, versionPrefix)
	return versioned && version != "" && len(name) <= maxLength && !Known(name) && !strings.ContainsFunc(version, unusual)
}

func unusual(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._+-", r)
}

// Versions returns QEMU's machine types.
func Versions() []string {
	out := []string{Newest}
	for _, v := range versions {
		out = append(out, versionPrefix+v)
	}
	return out
}

// Map maps the machine types of other builds to QEMU's. The first matching entry counts; a type without one gets
// OfOtherBuilds.
type Map []Entry

// Entry is a line of a Map. Pattern may have the wildcards * and ?.
type Entry struct{ Pattern, Type string }

const maxEntries = 64

// Parse reads PATTERN=TYPE entries, separated by newlines or commas.
func Parse(text string) (Map, error) {
	var m Map
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' }) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		pattern, kind, found := strings.Cut(line, "=")
		entry := Entry{strings.TrimSpace(pattern), strings.TrimSpace(kind)}
		switch _, err := path.Match(entry.Pattern, ""); {
		case !found || entry.Pattern == "" || err != nil:
			return nil, fmt.Errorf("%q must be like pc-q35-rhel8*=pc-q35-5.2", strings.TrimSpace(line))
		case !Known(entry.Type):
			return nil, fmt.Errorf("QEMU has no machine type %q; it has %s", entry.Type, strings.Join(Versions(), ", "))
		}
		m = append(m, entry)
	}
	if len(m) > maxEntries {
		return nil, fmt.Errorf("there are %d entries, and %d are allowed", len(m), maxEntries)
	}
	return m, nil
}

// ErrUnknown means that no guest can run with the machine type.
var ErrUnknown = errors.New("must be q35 or one of its versions, such as " + Default)

// Resolve returns QEMU's machine type for the one that a VM names.
func (m Map) Resolve(name string) (string, error) {
	switch {
	case Known(name):
		return name, nil
	case !Foreign(name):
		return "", ErrUnknown
	}
	for _, e := range m {
		if matched, err := path.Match(e.Pattern, name); err == nil && matched {
			return e.Type, nil
		}
	}
	return OfOtherBuilds, nil
}

// Gives reports whether another build's type may resolve to name.
func (m Map) Gives(name string) bool {
	return name == OfOtherBuilds || slices.ContainsFunc(m, func(e Entry) bool { return e.Type == name })
}

// Allowed reports whether name matches; without patterns, everything does.
func Allowed(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
