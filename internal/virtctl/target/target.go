// Package target parses references to a machine: TYPE/NAME/NAMESPACE and its variants. It is pure.
package target

import (
	"fmt"
	"strings"
)

// Target is a machine as the user names it.
type Target struct {
	// User is the part before an @ and may be empty.
	User string
	// Kind is "vm" or "vmi".
	Kind string
	Name string
	// Namespace is empty if the user named none.
	Namespace string
}

// Syntax is the form of a target for usage lines.
const Syntax = "vm|vmi/NAME[/NAMESPACE]"

var kinds = map[string]string{
	"vm": "vm", "vms": "vm", "virtualmachine": "vm", "virtualmachines": "vm",
	"vmi": "vmi", "vmis": "vmi", "virtualmachineinstance": "vmi", "virtualmachineinstances": "vmi",
}

// Parse parses TYPE/NAME or TYPE/NAME/NAMESPACE. Dots belong to the name.
func Parse(text string) (Target, error) {
	parts := strings.Split(text, "/")
	kind, known := kinds[parts[0]]
	switch {
	case len(parts) == 1:
		return Target{}, fmt.Errorf("target %q says no type: write %s", text, Syntax)
	case !known:
		return Target{}, fmt.Errorf("target %q is of unknown type %q: write %s", text, parts[0], Syntax)
	case len(parts) > 3:
		return Target{}, fmt.Errorf("target %q has too many slashes: write %s", text, Syntax)
	}
	t := Target{Kind: kind, Name: parts[1]}
	if len(parts) == 3 {
		t.Namespace = parts[2]
		if t.Namespace == "" {
			return Target{}, fmt.Errorf("target %q has an empty namespace: write %s", text, Syntax)
		}
	}
	if t.Name == "" {
		return Target{}, fmt.Errorf("target %q has an empty name: write %s", text, Syntax)
	}
	return t, nil
}

// ParseLogin parses a target with an optional USER@ before it. User names may contain an @ themselves
// (user@domain), so the last one separates.
func ParseLogin(text string) (Target, error) {
	user, machine := "", text
	if at := strings.LastIndex(text, "@"); at >= 0 {
		user, machine = text[:at], text[at+1:]
		if user == "" {
			return Target{}, fmt.Errorf("target %q has an empty user name: write [USER@]%s", text, Syntax)
		}
	}
	t, err := Parse(machine)
	t.User = user
	return t, err
}

// In returns the target with its namespace filled in.
func (t Target) In(namespace string) Target {
	if t.Namespace == "" {
		t.Namespace = namespace
	}
	return t
}

// String returns the form that Parse accepts, without the user.
func (t Target) String() string {
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Name + "/" + t.Namespace
}
