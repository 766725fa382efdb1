// Package logline is the form of the log lines of all components: the two formats, the keys, and how a line names the VM
// or the VMI that it is about. virt-launcher links it, and every VM pays for that: it must not import log/slog.
package logline

import (
	"fmt"
	"strings"
)

// Flag is the flag of every component that sets its Format; Usage describes it.
const (
	Flag  = "log-format"
	Usage = "format of the log: text or json"
)

// The keys of the VMI and of the VM that a line is about. Their values are Objects.
const (
	VMI = "vmi"
	VM  = "vm"
)

// Format is how a component writes its log. The zero value is Text. It is a flag's value.
type Format string

const (
	// Text is for people: klog's format, or that of the program.
	Text Format = "text"
	// JSON is an object on each line.
	JSON Format = "json"
)

// Set accepts "text" and "json".
func (f *Format) Set(value string) error {
	switch Format(value) {
	case Text, JSON:
		*f = Format(value)
		return nil
	}
	return fmt.Errorf("%q is no format of logs: it must be text or json", value)
}

// String returns the format's name.
func (f *Format) String() string {
	if *f == "" {
		return string(Text)
	}
	return string(*f)
}

// Args returns the arguments that make a program log in the format, none for the default.
func (f Format) Args() []string {
	if f != JSON {
		return nil
	}
	return []string{"--" + Flag + "=" + string(f)}
}

// Type is for a flag's usage.
func (*Format) Type() string { return "format" }

// Object is a VM or a VMI. In text it is namespace/name/UID, in JSON an object.
type Object struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String returns namespace/name/UID.
func (o Object) String() string { return o.Namespace + "/" + o.Name + "/" + o.UID }

// Complete reports whether a reader of the line can find the object and distinguish it from others of its name.
func (o Object) Complete() bool { return o.Namespace != "" && o.Name != "" && o.UID != "" }

// Set reads String's form. An Object is a flag's value.
func (o *Object) Set(text string) error {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return fmt.Errorf("%q is no NAMESPACE/NAME/UID", text)
	}
	*o = Object{Namespace: parts[0], Name: parts[1], UID: parts[2]}
	return nil
}
