// Package audit counts requests by the API server's audit log: who asked for
// what, how often.
//
// It reads the log of the embedded cluster, whose policy records every write of
// everybody and what Drydock's components read. It must not ask the API server
// anything.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// drydock is what the names of the components' users begin with.
const drydock = "system:serviceaccount:kubevirt:kubevirt-"

// Kind sorts requests by what they cost.
type Kind string

const (
	// Write changes an object.
	Write Kind = "write"
	// Read is a get of one object.
	Read Kind = "read"
	// List reads many objects, as a cache does when it is filled.
	List Kind = "list"
	// Watch stays open.
	Watch Kind = "watch"
	// Review asks for an opinion (may this user, is this token) and stores nothing.
	Review Kind = "review"
	// Lease is what a component does to say that it is still there; that has
	// nothing to do with virtual machines, and is counted apart.
	Lease Kind = "lease"
)

// Request is one request of a component.
type Request struct {
	// Component is apiserver (virt-api), controller or handler, of Drydock's; of the
	// others a name that componentOf gives.
	Component string
	// Drydock is whether the component is one of Drydock's.
	Drydock bool
	Verb    string
	// Resource has the subresource behind a slash.
	Resource        string
	Namespace, Name string
	At              time.Time
	Code            int
	Agent           string
}

// Kind says what the request costs.
func (r Request) Kind() Kind {
	if r.Resource == "leases" {
		return Lease
	}
	switch r.Verb {
	case "get":
		return Read
	case "list":
		return List
	case "watch":
		return Watch
	}
	if strings.HasSuffix(r.Resource, "reviews") {
		return Review
	}
	return Write
}

// event is what is read of an entry.
type event struct {
	Stage     string    `json:"stage"`
	Verb      string    `json:"verb"`
	Received  time.Time `json:"requestReceivedTimestamp"`
	UserAgent string    `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// ErrRotated says that the log does not reach back to the moment that was asked
// for: the API server keeps three files, and removes what is older.
var ErrRotated = errors.New("the beginning of the audit log is gone, more was written since than it keeps")

// Since returns the requests of Drydock's components from a moment on, as the log
// in a folder has them, in no particular order. Whoever plays a component by
// impersonation counts as that component.
func Since(folder string, from time.Time) ([]Request, error) {
	return since(folder, from, ours)
}

// AllSince returns the requests of all components, Kubernetes' own among them, from
// a moment on. Of these the log has only what they write. What people ask for,
// and the benchmark itself, is not in it.
func AllSince(folder string, from time.Time) ([]Request, error) {
	return since(folder, from, everyone)
}

// choice is whose requests count.
type choice struct {
	// mark is in every line that counts; reading the others would cost more.
	mark []byte
	// component names the component that a user is, and reports whether it counts.
	component func(user string) (name string, counts bool)
}

var (
	ours     = choice{[]byte(drydock), drydockComponent}
	everyone = choice{nil, componentOf}
)

func drydockComponent(user string) (string, bool) { return strings.CutPrefix(user, drydock) }

// componentOf names the component behind a user. All nodes' kubelets are one.
// People have names without a colon.
func componentOf(user string) (string, bool) {
	name, component := strings.CutPrefix(user, "system:")
	switch {
	case strings.HasPrefix(user, drydock):
		return drydockComponent(user)
	case name == "apiserver":
		return "kube-apiserver", true // apiserver alone is virt-api
	case strings.HasPrefix(name, "node:"):
		return "kubelet", true
	}
	// The embedded cluster's own have names like drydock:storage.
	return strings.TrimPrefix(name, "serviceaccount:"), component || strings.HasPrefix(user, "drydock:")
}

func since(folder string, from time.Time, of choice) ([]Request, error) {
	files, err := filepath.Glob(filepath.Join(folder, "audit*.log"))
	if err != nil {
		return nil, fmt.Errorf("finding the audit log: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("finding the audit log: there is none in %s", folder)
	}
	var out []Request
	whole := len(files) == 1
	for _, path := range files {
		requests, begins, err := readFile(path, from, of)
		if err != nil {
			return nil, err
		}
		whole = whole || begins.Before(from)
		out = append(out, requests...)
	}
	if !whole {
		return nil, ErrRotated
	}
	return out, nil
}

// readFile also tells when the file's first request was made.
func readFile(path string, from time.Time, of choice) (out []Request, begins time.Time, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, begins, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.ModTime().Before(from) {
		return nil, begins, nil
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for first := true; lines.Scan(); first = false {
		if first {
			begins = received(lines.Bytes())
		}
		if r, ok := parse(lines.Bytes(), of); ok && !r.At.Before(from) {
			out = append(out, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, begins, fmt.Errorf("reading the audit log %s: %w", path, err)
	}
	return out, begins, nil
}

// received is when a request was made; long ago when its line does not tell.
func received(line []byte) time.Time {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return time.Time{}
	}
	return e.Received
}

// parse gives the request of a component that counts; the last line may be half
// written, and is none then.
func parse(line []byte, of choice) (Request, bool) {
	if !bytes.Contains(line, of.mark) {
		return Request{}, false
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return Request{}, false
	}
	user := e.User.Username
	if e.Impersonated != nil {
		user = e.Impersonated.Username
	}
	component, counts := of.component(user)
	// A watch is complete when it ends; what counts is that it began.
	if !counts || e.Verb != "watch" && e.Stage != "ResponseComplete" || e.Verb == "watch" && e.Stage != "ResponseStarted" {
		return Request{}, false
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return Request{
		Component: component, Drydock: strings.HasPrefix(user, drydock), Verb: e.Verb, Resource: resource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		At: e.Received, Code: e.ResponseStatus.Code, Agent: e.UserAgent,
	}, true
}

// Count is how many of the requests are of a kind.
func Count(requests []Request, kind Kind) int {
	n := 0
	for _, r := range requests {
		if r.Kind() == kind {
			n++
		}
	}
	return n
}

// OfNamespace reports whether a request makes what every new namespace gets.
func OfNamespace(r Request) bool {
	return r.Resource == "serviceaccounts" || r.Resource == "configmaps" && r.Name == "kube-root-ca.crt"
}

// Of returns the requests for which a test holds.
func Of(requests []Request, holds func(Request) bool) []Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return !holds(r) })
}

// Sums counts equal requests, "handler patch virtualmachineinstances", the most
// frequent first.
func Sums(requests []Request) []string {
	counts := map[string]int{}
	for _, r := range requests {
		counts[fmt.Sprintf("%s %s %s", r.Component, r.Verb, r.Resource)]++
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%4d  %s", counts[name], name)
	}
	return names
}
