package redact

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// named is a machine, or a namespace, that a line is about.
type named struct{ namespace, name string }

// Log returns a component's log without the lines about machines whose texts are withheld, and without those that unwanted
// names.
func (r *Redactor) Log(text string, unwanted func(namespace, name string) bool) string {
	var out strings.Builder
	dropped := 0
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(namesIn(line), func(o named) bool { return r.Withholds(o.namespace) || unwanted(o.namespace, o.name) }) ||
			r.mentions(line) {
			dropped++
			continue
		}
		// Kubernetes writes the time.
		at, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			at, rest = "", line
		} else {
			at += " "
		}
		out.WriteString(at)
		out.WriteString(r.Text(rest))
	}
	if dropped > 0 {
		fmt.Fprintf(&out, "(%d lines about other machines are left out)\n", dropped)
	}
	return out.String()
}

// mentions reports whether a line has the name of a namespace whose texts are withheld before an object's, as in lab/web.
func (r *Redactor) mentions(line string) bool {
	if len(r.why) == 0 {
		return false
	}
	for token := range split(line) {
		if namespace, _, qualified := strings.Cut(token, "/"); qualified && r.why[namespace] != "" {
			return true
		}
	}
	return false
}

// machineKeys are the keys of a line's machines, with values such as lab/web/UID or an object of JSON; those of controllers
// have their kind as key.
var machineKeys = map[string]bool{
	"vmi": true, "vm": true, "VirtualMachine": true, "VirtualMachineInstance": true,
}

// namesIn returns the machines and the namespaces that a line in klog's form or in JSON names by a key.
func namesIn(line string) []named {
	var out []named
	words := assigned(line)
	for i, key := range words {
		if i+1 == len(words) {
			break
		}
		value := words[i+1]
		namespace, rest, qualified := strings.Cut(value, "/")
		name, _, _ := strings.Cut(rest, "/")
		switch {
		case key == "namespace":
			out = append(out, named{namespace: value})
		case machineKeys[key] && qualified:
			out = append(out, named{namespace: namespace, name: name})
		case machineKeys[key]:
			out = append(out, objectOf(words[i+1:min(i+5, len(words))]))
		case strings.HasPrefix(key, "VirtualMachine") && qualified:
			out = append(out, named{namespace: namespace})
		}
	}
	return slices.DeleteFunc(out, func(o named) bool { return o.namespace == "" })
}

// objectOf reads the names and values of a JSON object.
func objectOf(words []string) (o named) {
	for i := 0; i+1 < len(words); i += 2 {
		switch words[i] {
		case "namespace":
			o.namespace = words[i+1]
		case "name":
			o.name = words[i+1]
		}
	}
	return o
}

// assigned returns a line's words, with an empty one where neither ':' nor '=' is between two.
func assigned(line string) []string {
	var out []string
	for end := 0; ; {
		length := strings.IndexFunc(line[end:], func(r rune) bool { return !isSeparator(r) })
		if length < 0 {
			return out
		}
		start := end + length
		if end > 0 && !strings.ContainsAny(line[end:start], ":=,") {
			out = append(out, "")
		}
		if length = strings.IndexFunc(line[start:], isSeparator); length < 0 {
			return append(out, line[start:])
		}
		end = start + length
		out = append(out, line[start:end])
	}
}
