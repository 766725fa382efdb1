package redact

import (
	"fmt"
	"maps"
	"strings"
)

type form int

const (
	// fields is an object of which the named fields are allowed.
	fields form = iota
	// keyed is a map of which the named keys are allowed, and if anyKey is set, all of known domains.
	keyed
	// each is a map from any name to values with the rule anyKey.
	each
	// expression is a term of a selector.
	expression
	// value is a number, a truth value, or a short text such as a name.
	value
	quantity
	// message is a text for people.
	message
	// address is a URL, of which scheme and host are allowed.
	address
)

type rule struct {
	form   form
	fields map[string]rule
	anyKey *rule
}

var plainValue, number = rule{form: value}, rule{form: quantity}

// parse reads rules: words are fields with plain values, NAME:RULE is a field with another rule, and NAME{ … } an object
// or a list of objects.
func parse(text string, named map[string]rule) rule {
	words := strings.Fields(strings.NewReplacer("{", " { ", "}", " } ").Replace(text))
	out, rest := parseFields(words, named)
	if len(rest) > 0 || strings.Count(text, "{") != strings.Count(text, "}") {
		panic(fmt.Sprintf("a rule has a brace too many: %s", text))
	}
	return out
}

func parseFields(words []string, named map[string]rule) (out rule, rest []string) {
	out.fields = map[string]rule{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "}" {
			return out, words
		}
		name, ref, isRef := strings.Cut(word, ":")
		if _, twice := out.fields[name]; twice {
			panic(fmt.Sprintf("a rule has the field %q twice", name))
		}
		switch {
		case len(words) > 0 && words[0] == "{":
			out.fields[name], words = parseFields(words[1:], named)
		case isRef:
			of, known := named[ref]
			if !known {
				panic(fmt.Sprintf("a rule names %q, which is none", ref))
			}
			out.fields[name] = of
		default:
			out.fields[name] = plainValue
		}
	}
	return out, nil
}

// and returns a rule with the fields of both.
func (r rule) and(other rule) rule {
	all := maps.Clone(r.fields)
	maps.Copy(all, other.fields)
	return rule{fields: all}
}
