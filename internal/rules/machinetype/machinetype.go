// Package machinetype knows which machine types virt-launcher's QEMU has, and by which of them a guest runs whose
// VM names the type of another build of QEMU (decision 501).
//
// It is pure, and must not know what a machine is made of; package machine does.
package machinetype

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Default is what a VM without a machine type is pinned to when it is created, and what the types of other builds
// stand for: a versioned type, so that an upgrade of QEMU changes no guest's hardware.
const Default = "pc-q35-7.2"

// versions are the versions of the q35 machine that QEMU has; a test asks QEMU.
var versions = []string{
	"7.2", "7.1", "7.0", "6.2", "6.1", "6.0", "5.2", "5.1", "5.0", "4.2", "4.1", "4.0.1", "4.0", "3.1", "3.0",
	"2.12", "2.11", "2.10", "2.9", "2.8", "2.7", "2.6", "2.5", "2.4",
}

const (
	// q35 is QEMU's newest version.
	q35           = "q35"
	versionPrefix = "pc-q35-"
	maxLength     = 64
)

// Known reports whether QEMU has the machine type, and it is one whose devices have stable places: q35 or one of its
// versions.
func Known(name string) bool {
	version, versioned := strings.CutPrefix(name, versionPrefix)
	return name == q35 || versioned && slices.Contains(versions, version)
}

// Foreign reports whether another build of QEMU may call a version of the q35 machine so, such as pc-q35-rhel9.4.0.
func Foreign(name string) bool {
	version, versioned := strings.CutPrefix(name, versionPrefix)
	return versioned && version != "" && len(name) <= maxLength && !Known(name) && !strings.ContainsFunc(version, unusual)
}

func unusual(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._+-", r)
}

// Versions lists the machine types that QEMU has.
func Versions() []string {
	out := []string{q35}
	for _, v := range versions {
		out = append(out, versionPrefix+v)
	}
	return out
}

// Map says by which of QEMU's types guests run whose VMs name the types of other builds. The first entry whose
// pattern a type matches counts; a type that matches none stands for Default. It is a value.
type Map []Entry

// Entry is a line of a Map. Pattern may have the wildcards * and ?.
type Entry struct{ Pattern, Type string }

// maxEntries bounds a Map.
const maxEntries = 64

// Parse reads a map as it is written: lines, or entries with commas between them, of PATTERN=TYPE.
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

// ErrUnknown says that a name is no machine type that a guest can run with.
var ErrUnknown = errors.New("must be q35 or one of its versions, such as " + Default)

// Resolve returns the type of QEMU's by which a guest runs whose VM names a type.
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
	return Default, nil
}

// Gives reports whether a guest whose VM names another build's type may run by name.
func (m Map) Gives(name string) bool {
	return name == Default || slices.ContainsFunc(m, func(e Entry) bool { return e.Type == name })
}

// Allowed reports whether name matches one of the patterns; no pattern allows everything.
func Allowed(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
