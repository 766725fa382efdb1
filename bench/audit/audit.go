// Package audit counts requests by the API server's audit log: who asked for
// what, how often.
//
// It reads the log of the embedded cluster, whose policy records every write and
// what Drydock's components read. It must not ask the API server anything.
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
)

// Request is one of a Drydock component's requests.
type Request struct {
	// Component is apiserver (virt-api), controller or handler.
	Component string
	Verb      string
	// Resource has the subresource behind a slash.
	Resource        string
	Namespace, Name string
	At              time.Time
	Code            int
	Agent           string
}

// Kind says what the request costs.
func (r Request) Kind() Kind {
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

// Since are the components' requests from a moment on that the log in a folder
// tells of, in no particular order. Whoever plays a component by impersonation
// counts as that component.
func Since(folder string, from time.Time) ([]Request, error) {
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
		requests, begins, err := readFile(path, from)
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
func readFile(path string, from time.Time) (out []Request, begins time.Time, err error) {
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
		if r, ok := parse(lines.Bytes()); ok && !r.At.Before(from) {
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

// parse gives the request of a Drydock component; the last line may be half
// written, and is none then.
func parse(line []byte) (Request, bool) {
	if !bytes.Contains(line, []byte(drydock)) {
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
	component, ours := strings.CutPrefix(user, drydock)
	// A watch is complete when it ends; what counts is that it began.
	if !ours || e.Verb != "watch" && e.Stage != "ResponseComplete" || e.Verb == "watch" && e.Stage != "ResponseStarted" {
		return Request{}, false
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return Request{
		Component: component, Verb: e.Verb, Resource: resource,
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
