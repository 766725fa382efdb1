// Package corpus has manifests as users write them for KubeVirt, with the expected result in Drydock. It parses
// the comments at their head; it must not import a client.
//
//	# Shape: one sentence, which no other manifest has.
//	# Verdict: accepted, warned or refused
//	# Says: a part of a warning or of a refusal; as many lines as there are warnings
//	# Needs: kind and name of an object that the manifest refers to, and neither it nor every cluster has
//	# Guest: a word and the guest's observation that confirms the manifest
//	# Drivers: hardware, where the guest has more than virtio devices
//
// The verdict is for the file without the objects in Needs. Accepted does not mean that the machine starts: of
// the referenced objects, admission only reads instance types, preferences, and the VMI of a migration.
package corpus

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed testdata/*.yaml
var files embed.FS

// Verdict is the API server's expected response.
type Verdict string

// A manifest is accepted without a warning, accepted with the listed warnings, or at least one of its
// objects is refused.
const (
	Accepted Verdict = "accepted"
	Warned   Verdict = "warned"
	Refused  Verdict = "refused"
)

// Fact is an observation in the guest.
type Fact struct {
	Word, Value string
}

// Manifest is a file of the corpus.
type Manifest struct {
	Name, Shape string
	Verdict     Verdict
	// Says has a part of each warning or refusal.
	Says []string
	// Needs are kinds and names.
	Needs []string
	// Guest is empty if no test boots the manifest.
	Guest []Fact
	// HardwareDrivers means SATA, e1000e or a watchdog. A kernel with these needs 60 MiB, and a guest of 128 MiB
	// may run short.
	HardwareDrivers bool
	// Text has the objects in the order of their creation.
	Text []byte
}

// All returns the manifests sorted by name.
func All() ([]Manifest, error) {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		return nil, fmt.Errorf("listing the corpus: %w", err)
	}
	var all []Manifest
	for _, entry := range entries {
		text, err := files.ReadFile("testdata/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", entry.Name(), err)
		}
		m, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading the head of %s: %w", entry.Name(), err)
		}
		m.Name = strings.TrimSuffix(entry.Name(), ".yaml")
		all = append(all, m)
	}
	return all, nil
}

func parse(text []byte) (Manifest, error) {
	m := Manifest{Text: text}
	for line := range bytes.Lines(text) {
		comment, isComment := strings.CutPrefix(strings.TrimSpace(string(line)), "# ")
		if !isComment {
			break
		}
		if err := m.read(comment); err != nil {
			return Manifest{}, err
		}
	}
	switch {
	case m.Shape == "":
		return Manifest{}, fmt.Errorf("there is no Shape")
	case !slices.Contains([]Verdict{Accepted, Warned, Refused}, m.Verdict):
		return Manifest{}, fmt.Errorf("the Verdict is %q, want accepted, warned or refused", m.Verdict)
	case (m.Verdict == Accepted) != (len(m.Says) == 0):
		return Manifest{}, fmt.Errorf("a verdict %s with %d lines Says", m.Verdict, len(m.Says))
	case m.Verdict == Refused && len(m.Guest) > 0:
		return Manifest{}, fmt.Errorf("a manifest that is refused has no guest")
	case m.HardwareDrivers && len(m.Guest) == 0:
		return Manifest{}, fmt.Errorf("a manifest that no test boots needs no Drivers")
	}
	return m, nil
}

func (m *Manifest) read(comment string) error {
	key, value, _ := strings.Cut(comment, ": ")
	switch key {
	case "Shape":
		m.Shape = value
	case "Verdict":
		m.Verdict = Verdict(value)
	case "Says":
		m.Says = append(m.Says, value)
	case "Needs":
		m.Needs = append(m.Needs, value)
	case "Guest":
		word, rest, _ := strings.Cut(value, " ")
		m.Guest = append(m.Guest, Fact{Word: word, Value: rest})
	case "Drivers":
		if value != "hardware" {
			return fmt.Errorf("the Drivers are %q, want hardware or no such line", value)
		}
		m.HardwareDrivers = true
	default:
		return fmt.Errorf("%q begins with none of Shape, Verdict, Says, Needs, Guest, Drivers", comment)
	}
	return nil
}
