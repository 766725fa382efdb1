package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// call is a request as it is sent to the API server. It is made of the parts that were judged, never of the text that
// came.
type call struct {
	method, path, query string
	// answer is the form of its answer; that of a stream is also its subprotocol.
	answer answerKind
}

const (
	maxPath  = 1 << 10
	maxQuery = 8 << 10
	maxName  = 253
)

// judge returns the call that a request asks for, or why it does not pass. target is the request's target, the text
// after the method; upgrade means that it asks for a WebSocket.
func judge(method, target string, upgrade bool) (call, error) {
	path, query, _ := strings.Cut(target, "?")
	elements, err := split(path)
	if err != nil {
		return call{}, err
	}
	values, err := parseQuery(query)
	if err != nil {
		return call{}, err
	}
	found, keys, ok := lookUp(method, elements, values.Has("watch"), upgrade)
	if !ok {
		return call{}, forbidden("the web console's server does not pass %s %s to the API server: it passes only the requests of its own pages", method, path)
	}
	for key := range values {
		if !slices.Contains(keys, key) {
			return call{}, forbidden("the web console's server does not pass the query parameter %q of %s %s", key, method, path)
		}
	}
	switch {
	case found.answer == watchAnswer && values.Get("watch") != "true":
		return call{}, malformed("watching %s: write watch=true", path)
	case found.answer == watchAnswer && !upgrade:
		return call{}, malformed("watching %s: a watch needs a WebSocket", path)
	case upgrade && !found.answer.isStream():
		return call{}, malformed("%s is not served by WebSocket", path)
	}
	found.method, found.path, found.query = method, "/"+strings.Join(elements, "/"), values.Encode()
	return found, nil
}

// split returns the elements of a path. Nothing is decoded: a path with an escape is refused.
func split(path string) ([]string, error) {
	rest, absolute := strings.CutPrefix(path, "/")
	if !absolute || len(path) > maxPath {
		return nil, malformed("the path is not absolute, or is longer than %d bytes", maxPath)
	}
	elements := strings.Split(rest, "/")
	for _, element := range elements {
		if !isElement(element) {
			return nil, malformed("the path has an element that is no name of Kubernetes: write names of lower-case letters, digits, dots and dashes, without escapes")
		}
	}
	return elements, nil
}

func isElement(text string) bool {
	if text == "" || len(text) > maxName || !isAlphanumeric(text[0]) || !isAlphanumeric(text[len(text)-1]) {
		return false
	}
	for i := range len(text) {
		if !isAlphanumeric(text[i]) && text[i] != '-' && text[i] != '.' {
			return false
		}
	}
	return !strings.Contains(text, "..")
}

func isAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func parseQuery(text string) (url.Values, error) {
	if len(text) > maxQuery {
		return nil, malformed("the query is longer than %d bytes", maxQuery)
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, malformed("the query can't be read: %v", err)
	}
	for key, list := range values {
		if len(list) != 1 {
			return nil, malformed("the query has %q %d times: write it once", key, len(list))
		}
	}
	return values, nil
}

// lookUp returns the form of the answer, and the keys that the query may have.
func lookUp(method string, elements []string, watched, upgrade bool) (call, []string, bool) {
	groupVersion, rest := cutGroupVersion(elements)
	if groupVersion == subresources {
		return lookUpAction(method, rest, upgrade)
	}
	return lookUpKind(method, groupVersion, rest, watched)
}

func lookUpKind(method, groupVersion string, rest []string, watched bool) (call, []string, bool) {
	namespaced := len(rest) > 2 && rest[0] == "namespaces"
	if namespaced {
		rest = rest[2:]
	}
	if len(rest) != 1 && len(rest) != 2 {
		return call{}, nil, false
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.groupVersion == groupVersion && k.name == rest[0] })
	asked, known := verbOf(method, len(rest) == 2, watched)
	if at < 0 || !known || !slices.Contains(kinds[at].verbs, asked) || !kinds[at].isAt(namespaced, asked) {
		return call{}, nil, false
	}
	found := call{answer: jsonAnswer}
	if asked == watch {
		found.answer = watchAnswer
	}
	return found, verbsKeys[asked], true
}

// isAt reports whether the verb can be asked for in a namespace, or outside of all. Objects of all namespaces can be
// listed and watched together.
func (k kind) isAt(namespaced bool, asked verb) bool {
	if namespaced {
		return k.namespaced
	}
	return !k.namespaced || asked == list || asked == watch
}

func cutGroupVersion(elements []string) (groupVersion string, rest []string) {
	switch {
	case len(elements) > 2 && elements[0] == "api":
		return elements[1], elements[2:]
	case len(elements) > 3 && elements[0] == "apis":
		return elements[1] + "/" + elements[2], elements[3:]
	}
	return "", nil
}

func lookUpAction(method string, rest []string, upgrade bool) (call, []string, bool) {
	if len(rest) < 5 || rest[0] != "namespaces" {
		return call{}, nil, false
	}
	resource, name := rest[2], strings.Join(rest[4:], "/")
	at := slices.IndexFunc(actions, func(a action) bool { return a.method == method && a.resource == resource && a.name == name })
	if at < 0 {
		return call{}, nil, false
	}
	found := call{answer: actions[at].answer}
	// A page learns the reason of a refused WebSocket by asking without one.
	if found.answer == streamAnswer && !upgrade {
		found.answer = jsonAnswer
	}
	return found, actions[at].keys, true
}

func verbOf(method string, one, watched bool) (verb, bool) {
	switch {
	case method == http.MethodGet && one:
		return get, !watched
	case method == http.MethodGet && watched:
		return watch, true
	case method == http.MethodGet:
		return list, true
	case method == http.MethodPost:
		return create, !one
	case method == http.MethodPut:
		return update, one
	case method == http.MethodDelete:
		return remove, one
	}
	return "", false
}
