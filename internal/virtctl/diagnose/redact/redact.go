// Package redact decides which values of an object, and which text of a message or a log, may leave the cluster in a
// diagnosis. A value leaves only if a rule of this package allows it: a field that nobody has thought of is withheld.
// It is pure, and must not read anything from a cluster.
package redact

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
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

// Redactor has the rules, and remembers withheld values of tenants: a message may quote them.
type Redactor struct {
	memory *memory
	// counts has the remembered tokens of each namespace.
	counts map[string]int
	// why has the namespaces whose texts are withheld, and the reason; others is that of all namespaces that are not in except.
	why    map[string]string
	others string
	except map[string]bool
}

// New returns a Redactor that remembers nothing yet.
func New() *Redactor {
	return &Redactor{memory: newMemory(map[string]bool{}), counts: map[string]int{}, why: map[string]string{}}
}

// Kept is the allowed part of an object. Its texts may still quote anything: Finish redacts them.
type Kept struct {
	namespace string
	object    map[string]any
	own       *memory
	full      bool
}

// held is a text that is not redacted yet.
type held string

// Keep returns the allowed part of an object, and remembers the values that a tenant's object withholds. kind is its resource
// and group, as in virtualmachines.kubevirt.io; of an unknown kind only the metadata is allowed.
func (r *Redactor) Keep(kind string, object map[string]any) *Kept {
	rule, known := kinds()[kind]
	if !known {
		rule = kinds()[""]
	}
	w := walk{text: func(text string) any { return held(text) }}
	k := &Kept{own: newMemory(r.memory.shown)}
	k.object, _ = w.value(&rule, object).(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	k.namespace, _ = metadata["namespace"].(string)
	if about, _ := object["involvedObject"].(map[string]any); kind == "events" && about["kind"] == "Node" {
		k.namespace = "" // Kubernetes keeps it in any
	}
	r.show(w.shown)
	if isTenants(kind) {
		r.learn(k.namespace, w.withheld)
		return k
	}
	for _, value := range w.withheld {
		if _, complete := k.own.learn(value, maxOfOne-len(k.own.seen)); !complete {
			k.full = true
		}
	}
	return k
}

func (r *Redactor) show(values []string) {
	for _, value := range values {
		for token := range split(clean(value)) {
			for form := range forms(token) {
				if len(r.memory.shown) < maxTokens && !isPlain(form) {
					r.memory.shown[form] = true
				}
			}
		}
	}
}

func (r *Redactor) learn(namespace string, values []string) {
	for _, value := range values {
		added, complete := r.memory.learn(value, min(maxOfOne-r.counts[namespace], maxTokens-len(r.memory.seen)))
		r.counts[namespace] += added
		if !complete {
			r.Withhold(namespace, "its objects have too many values that may be secret")
			return
		}
	}
}

// Finish returns a kept object, whose texts quote nothing that is remembered.
func (r *Redactor) Finish(k *Kept) map[string]any {
	left, _ := r.finish(k, k.object).(map[string]any)
	return left
}

func (r *Redactor) finish(k *Kept, it any) any {
	switch it := it.(type) {
	case held:
		if k.full {
			return Withheld
		}
		return cut(r.TextOf(k.namespace, k.own.mask(clean(string(it)))))
	case []any:
		for i := range it {
			it[i] = r.finish(k, it[i])
		}
	case map[string]any:
		for name, of := range it {
			it[name] = r.finish(k, of)
		}
	}
	return it
}

// Object is Keep and Finish.
func (r *Redactor) Object(kind string, object map[string]any) map[string]any {
	return r.Finish(r.Keep(kind, object))
}

// Text returns a text without unprintable characters, remembered values, addresses beyond the host, and keys.
func (r *Redactor) Text(text string) string {
	return r.memory.mask(cutAddresses(clean(text)))
}

// TextOf is Text for a text about a namespace.
func (r *Redactor) TextOf(namespace, text string) string {
	if text != "" && r.Withholds(namespace) {
		return Withheld
	}
	return r.Text(text)
}

// Withhold makes TextOf withhold all texts of a namespace, because not all of its secrets are known.
func (r *Redactor) Withhold(namespace, why string) {
	if r.why[namespace] == "" {
		r.why[namespace] = why
	}
}

// WithholdOthers is Withhold for all other namespaces. After several calls, only those in all of them are left. Objects without
// a namespace are none's. Without a reason, the user has asked for it.
func (r *Redactor) WithholdOthers(why string, except ...string) {
	left := map[string]bool{"": true}
	for _, namespace := range except {
		left[namespace] = r.except == nil || r.except[namespace]
	}
	r.others, r.except = cmp.Or(r.others, why), left
}

// Withholds reports whether all texts of a namespace are withheld.
func (r *Redactor) Withholds(namespace string) bool {
	return r.why[namespace] != "" || r.IsOther(namespace)
}

// IsOther reports whether a namespace is one of WithholdOthers.
func (r *Redactor) IsOther(namespace string) bool { return r.except != nil && !r.except[namespace] }

// Gaps says whose texts are withheld, and why.
func (r *Redactor) Gaps() []string {
	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(r.why)) {
		out = append(out, fmt.Sprintf("messages and logs of namespace %s: %s", namespace, r.why[namespace]))
	}
	if r.others != "" {
		out = append(out, "messages and logs of other namespaces: "+r.others)
	}
	return out
}

type walk struct {
	withheld, shown []string
	text            func(string) any
}

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
			w.withholdName(name)
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
		return w.text(text)
	case rule.form == address:
		w.withheld = append(w.withheld, cutOff(text)...)
		return hostOf(text)
	case rule.form == value && isValue(text) && !isKey(text), rule.form == quantity && isQuantity(text):
		w.shown = append(w.shown, text)
		return text
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

// withhold notes a value, which the echo of a message must not bring back.
func (w *walk) withhold(value any) any {
	switch value := value.(type) {
	case string:
		w.withheld = append(w.withheld, value)
	case int64, float64:
		w.withheld = append(w.withheld, fmt.Sprint(value))
	case []any:
		for _, element := range value {
			w.withhold(element)
		}
	case map[string]any:
		for name, element := range value {
			w.withholdName(name)
			w.withhold(element)
		}
	}
	return Withheld
}

// withholdName notes a name of a field that no API type has.
func (w *walk) withholdName(name string) {
	if key(name) == Withheld {
		w.withheld = append(w.withheld, name)
	}
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

// key returns the name of a field that is not allowed: any other text is withheld, too.
func key(name string) string {
	if !fieldNames.MatchString(name) {
		return Withheld
	}
	return name
}

// mapKey returns a key that anybody may have chosen, if it is a name.
func mapKey(name string) string {
	if !isValue(name) || isKey(name) {
		return Withheld
	}
	return name
}

// isTenants reports whether an object's withheld values are remembered. Those of Drydock's own workloads are names that
// messages need.
func isTenants(kind string) bool {
	return kind == "persistentvolumeclaims" || kind == "controllerrevisions.apps" ||
		strings.HasSuffix(kind, "kubevirt.io") && kind != "kubevirts.kubevirt.io" && !strings.HasSuffix(kind, ".subresources.kubevirt.io")
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
