// Package redact decides which values of an object, and which text of a message or a log, may leave the cluster in a
// diagnosis. A value leaves only if a rule of this package allows it: a field that nobody has thought of is withheld.
// It is pure, and must not read anything from a cluster.
package redact

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Withheld replaces a value that no rule allows.
const Withheld = "(withheld)"

// maxValue and maxText bound allowed values, in bytes.
const (
	maxValue = 256
	maxText  = 4 << 10
)

// Redactor has the rules, and remembers withheld values: a message may quote them.
type Redactor struct {
	echoes echoes
	sealed bool
}

// New returns a Redactor that remembers nothing yet.
func New() *Redactor { return &Redactor{echoes: echoes{seen: map[string]bool{}}} }

// Seal ends the objects whose withheld values are remembered. From now on no text quotes any of them; before, an object's
// texts do not quote its own.
func (r *Redactor) Seal() {
	r.sealed = true
	r.echoes.build()
}

// Object returns the allowed part of an object. kind is its resource and group, as in virtualmachines.kubevirt.io; of an
// unknown kind only the metadata is allowed.
func (r *Redactor) Object(kind string, object map[string]any) map[string]any {
	rule, known := kinds()[kind]
	if !known {
		rule = kinds()[""]
	}
	w := walk{own: echoes{seen: map[string]bool{}}}
	w.text, w.learns = w.ownText, isTenants(kind)
	if r.sealed {
		w.text, w.learns = r.Text, false
	}
	// A message may come before the value that it quotes.
	if w.learns {
		w.value(&rule, object)
		w.own.build()
	}
	out, _ := w.value(&rule, object).(map[string]any)
	r.echoes.full = r.echoes.full || w.own.full
	for line := range w.own.seen {
		r.echoes.add(line)
	}
	return out
}

// Text returns a text without unprintable characters, remembered values, addresses beyond the host, and keys.
func (r *Redactor) Text(text string) string { return plain(r.echoes.mask(text)) }

type walk struct {
	own    echoes
	learns bool
	text   func(string) string
}

func (w *walk) ownText(text string) string { return plain(w.own.mask(text)) }

// value returns the allowed part of a value. A list has the rule of its elements.
func (w *walk) value(rule *rule, it any) any {
	if list, isList := it.([]any); isList {
		out := make([]any, 0, len(list))
		for _, element := range list {
			if _, nested := element.([]any); nested {
				out = append(out, w.withhold(element))
				continue
			}
			out = append(out, w.value(rule, element))
		}
		return out
	}
	switch it := it.(type) {
	case nil:
		return nil
	case map[string]any:
		return w.object(rule, it)
	case string:
		return w.string(rule, it)
	}
	if rule.form == value || rule.form == quantity {
		return it // a number or a truth value
	}
	return w.withhold(it)
}

func (w *walk) object(rule *rule, object map[string]any) any {
	if len(object) == 0 {
		return object
	}
	switch rule.form {
	case fields:
		return w.fields(rule, object)
	case keyed:
		return w.keyed(rule, object)
	case each:
		out := make(map[string]any, len(object))
		for name, of := range object {
			out[mapKey(name)] = w.value(rule.anyKey, of)
		}
		return out
	case expression:
		return w.expression(object)
	default:
		return w.withhold(object)
	}
}

func (w *walk) fields(rule *rule, object map[string]any) any {
	out := make(map[string]any, len(object))
	for name, value := range object {
		of, allowed := rule.fields[name]
		switch {
		case name == "managedFields":
		case allowed:
			out[name] = w.value(&of, value)
		default:
			out[key(name)] = w.withhold(value)
		}
	}
	return out
}

func (w *walk) keyed(rule *rule, object map[string]any) any {
	out := make(map[string]any, len(object))
	for name, value := range object {
		of, allowed := rule.fields[name]
		if !allowed && rule.anyKey != nil && isKnownKey(name) {
			of, allowed = *rule.anyKey, true
		}
		switch {
		case allowed:
			out[name] = w.value(&of, value)
		case rule.anyKey != nil: // labels are names, which messages may have
			out[Withheld] = Withheld
		default:
			out[Withheld] = w.withhold(value)
		}
	}
	return out
}

// expression is a term of a selector: its values are those of a label.
func (w *walk) expression(object map[string]any) any {
	out := make(map[string]any, len(object))
	name, _ := object["key"].(string)
	for field, value := range object {
		switch {
		case field == "key", field == "operator", field == "values" && isKnownKey(name):
			out[field] = w.value(&plainValue, value)
		default:
			out[key(field)] = Withheld
		}
	}
	return out
}

func (w *walk) string(rule *rule, text string) any {
	switch {
	case rule.form == message:
		return w.text(cut(text))
	case rule.form == address:
		return hostOf(text)
	case rule.form == value && isValue(text), rule.form == quantity && isQuantity(text):
		return plain(text)
	case text == "":
		return text
	}
	return w.withhold(text)
}

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + " …"
}

// withhold remembers a value, which the echo of a message must not bring back.
func (w *walk) withhold(value any) any {
	if w.learns {
		w.own.learn(value)
	}
	return Withheld
}

// isValue reports whether a text has the form of a name, a path, a version or a reason.
func isValue(text string) bool {
	return len(text) <= maxValue && utf8.ValidString(text) && !strings.Contains(text, "://") &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func isQuantity(text string) bool {
	return len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && !strings.ContainsRune(".+-eEinumkKMGTP", r)
	})
}

// fieldNames are the names that API types give to fields.
var fieldNames = regexp.MustCompile(`^[a-z][A-Za-z]{0,39}(32|64)?$`)

// key returns the name of a field that is not allowed: what is no field's name is withheld, too.
func key(name string) string {
	if !fieldNames.MatchString(name) {
		return Withheld
	}
	return name
}

// mapKey returns a key that anybody may have chosen, if it is a name.
func mapKey(name string) string {
	if !isValue(name) {
		return Withheld
	}
	return plain(name)
}

// isTenants reports whether an object's withheld values are remembered. Those of Drydock's own workloads are names that
// messages need.
func isTenants(kind string) bool {
	return strings.HasSuffix(kind, "kubevirt.io") && kind != "kubevirts.kubevirt.io"
}

// isKnownKey reports whether a label has a meaning for Kubernetes, KubeVirt or Drydock.
func isKnownKey(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	if !qualified {
		return name == "kubevirt.io" || name == "app"
	}
	for _, known := range []string{"kubevirt.io", "drydock.dev", "kubernetes.io", "k8s.io"} {
		if domain == known || strings.HasSuffix(domain, "."+known) {
			return true
		}
	}
	return false
}
