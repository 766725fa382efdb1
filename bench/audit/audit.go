// Package audit counts API requests in the audit log of the embedded cluster, whose policy records all writes,
// and the reads of Drydock's components. It must not send requests to the API server.
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

const drydock = "system:serviceaccount:kubevirt:kubevirt-"

// Kind is a class of requests by their cost.
type Kind string

const (
	// Write changes an object.
	Write Kind = "write"
	// Read is a get of one object.
	Read Kind = "read"
	// List is a cache that is being filled, for example.
	List Kind = "list"
	// Watch stays open.
	Watch Kind = "watch"
	// Review asks for a decision, such as a SubjectAccessReview, and stores nothing.
	Review Kind = "review"
	// Lease is unrelated to virtual machines and counted separately.
	Lease Kind = "lease"
)

// Request is one request of a component.
type Request struct {
	// Component is apiserver (virt-api), controller or handler for Drydock; for others see componentOf.
	Component string
	Drydock   bool
	Verb      string
	// Resource has the subresource after a slash.
	Resource        string
	Namespace, Name string
	At              time.Time
	Code            int
	Agent           string
}

// Kind returns the class of the request.
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

// ErrRotated means that the log does not reach back far enough: the API server keeps three files.
var ErrRotated = errors.New("the beginning of the audit log is gone, more was written since than it keeps")

// Since returns the requests of Drydock's components, unordered. An impersonated request counts for the
// impersonated component.
func Since(folder string, from time.Time) ([]Request, error) {
	return since(folder, from, ours)
}

// AllSince returns the requests of all components but people and the benchmark. For those other than Drydock's,
// the log has only writes.
func AllSince(folder string, from time.Time) ([]Request, error) {
	return since(folder, from, everyone)
}

// choice selects the requests to count.
type choice struct {
	// mark occurs in every line to count; parsing the others would cost more.
	mark      []byte
	component func(user string) (name string, counts bool)
}

var (
	ours     = choice{[]byte(drydock), drydockComponent}
	everyone = choice{nil, componentOf}
)

func drydockComponent(user string) (string, bool) { return strings.CutPrefix(user, drydock) }

// The kubelets of all nodes count as one. Names of people have no colon.
func componentOf(user string) (string, bool) {
	name, component := strings.CutPrefix(user, "system:")
	switch {
	case strings.HasPrefix(user, drydock):
		return drydockComponent(user)
	case name == "apiserver":
		return "kube-apiserver", true // plain apiserver is virt-api
	case strings.HasPrefix(name, "node:"):
		return "kubelet", true
	}
	// The embedded cluster's own components have names like drydock:storage.
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

// An invalid line has the zero time.
func received(line []byte) time.Time {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return time.Time{}
	}
	return e.Received
}

// A partly written last line is skipped.
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
	// A watch completes only at its end, so it counts when it starts.
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

// Count returns the number of requests of a kind.
func Count(requests []Request, kind Kind) int {
	n := 0
	for _, r := range requests {
		if r.Kind() == kind {
			n++
		}
	}
	return n
}

// OfNamespace reports whether a request creates a namespace's default object.
func OfNamespace(r Request) bool {
	return r.Resource == "serviceaccounts" || r.Resource == "configmaps" && r.Name == "kube-root-ca.crt"
}

// Of returns the requests for which holds is true.
func Of(requests []Request, holds func(Request) bool) []Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return !holds(r) })
}

// Sums counts equal requests, the most frequent first.
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
