package virtctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// token authenticates the kubeconfig of the scripts.
const token = "the-token-of-ann"

// apiServer plays an API server with virt-api for virtctl: objects can be read, listed and watched; a script's answer
// for a path is sent unchanged; other subresources are accepted; streams lead to a guest that echoes. It records every
// request.
type apiServer struct {
	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	answers map[string]answer
	// The first object comes at once, the others during a watch. They wait in coming.
	follows map[string][]*unstructured.Unstructured
	coming  []*unstructured.Unstructured
	// conflicts are the methods and paths that are refused once with a conflict.
	conflicts map[string]bool
	journal   []string
	watches   []chan *unstructured.Unstructured
	// typed is the input of consoles; guests counts the open streams.
	typed  bytes.Buffer
	guests sync.WaitGroup
}

type answer struct {
	code int
	body string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		refuse(w, http.StatusUnauthorized, "Unauthorized", metav1.StatusReasonUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), metav1.StatusReasonBadRequest)
		return
	}
	s.record(r, body)
	s.mu.Lock()
	scripted, isScripted := s.answers[r.Method+" "+r.URL.Path]
	if next := s.follows[r.Method+" "+r.URL.Path]; len(next) > 0 && !strings.Contains(string(body), "dryRun") {
		s.objects[pathOf(next[0])], s.coming = next[0], next[1:]
	}
	conflicts := s.conflicts[r.Method+" "+r.URL.Path]
	delete(s.conflicts, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	switch {
	case conflicts:
		refuse(w, http.StatusConflict, "the object has been modified", metav1.StatusReasonConflict)
	case isScripted:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(scripted.code)
		_, _ = io.WriteString(w, scripted.body)
	case strings.HasPrefix(r.URL.Path, "/apis/subresources.kubevirt.io/v1/"):
		s.subresource(w, r)
	case strings.HasSuffix(r.URL.Path, "/attach"):
		s.attach(w, r)
	case r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	case r.Method == http.MethodDelete:
		s.remove(w, r)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		s.read(w, r)
	}
}

// record records a request as the scripts compare it: one line, and the body, if any, in a second one.
func (s *apiServer) record(r *http.Request, body []byte) {
	if strings.HasPrefix(r.URL.RawQuery, "allowWatchBookmarks") || strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return // client-go's waits are not virtctl's
	}
	line := r.Method + " " + r.URL.RequestURI()
	if len(body) > 0 {
		line += "\n  " + strings.TrimSpace(string(body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, line)
}

func (s *apiServer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.journal, "\n")
	s.journal = nil
	if text != "" {
		text += "\n"
	}
	return text
}

func (s *apiServer) put(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[pathOf(object)] = object
	for _, watch := range s.watches {
		watch <- object
	}
}

func pathOf(object *unstructured.Unstructured) string {
	root := "/apis/"
	if object.GetAPIVersion() == "v1" {
		root = "/api/"
	}
	return fmt.Sprintf("%s%s/namespaces/%s/%ss/%s", root, object.GetAPIVersion(), object.GetNamespace(),
		strings.ToLower(object.GetKind()), object.GetName())
}

func (s *apiServer) read(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[r.URL.Path]
	switch _, isList := listKinds[path.Base(r.URL.Path)]; {
	case object != nil:
		writeJSON(w, http.StatusOK, object)
	case isList:
		s.list(w, r)
	default:
		s.missing(w, r)
	}
}

func (s *apiServer) missing(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	notFound(w, parts[len(parts)-2], parts[len(parts)-1])
}

var listKinds = map[string]string{
	"events":                           "EventList",
	"pods":                             "PodList",
	"virtualmachineinstances":          "VirtualMachineInstanceList",
	"virtualmachineinstancemigrations": "VirtualMachineInstanceMigrationList",
	"virtualmachines":                  "VirtualMachineList",
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"apiVersion": versionOf(r), "kind": listKinds[path.Base(r.URL.Path)],
		"metadata": map[string]any{"resourceVersion": "1"}, "items": s.selected(r),
	})
}

func versionOf(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return "v1"
	}
	return v1.SchemeGroupVersion.String()
}

func (s *apiServer) selected(r *http.Request) []any {
	items := []any{}
	name, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if isIn(at, r) && (!one || path.Base(at) == name) {
			items = append(items, s.objects[at].Object)
		}
	}
	return items
}

func isIn(at string, r *http.Request) bool {
	return path.Dir(at) == r.URL.Path || ofAllNamespaces(at) == r.URL.Path
}

// ofAllNamespaces returns the path of the list that has an object and those of other namespaces.
func ofAllNamespaces(at string) string {
	group, inNamespace, _ := strings.Cut(path.Dir(at), "/namespaces/")
	return group + "/" + path.Base(inNamespace)
}

// remove deletes an object.
func (s *apiServer) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[r.URL.Path] == nil {
		s.missing(w, r)
		return
	}
	writeJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// watch sends the existing objects, if requested, and every later change until the client disconnects.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	changes := make(chan *unstructured.Unstructured, 16)
	w.Header().Set("Content-Type", "application/json")
	flusher := http.NewResponseController(w)
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
		_ = flusher.Flush()
	}
	s.mu.Lock()
	s.watches = append(s.watches, changes)
	if r.URL.Query().Get("sendInitialEvents") != "" {
		for _, object := range s.selected(r) {
			send("ADDED", object)
		}
		send("BOOKMARK", map[string]any{
			"apiVersion": versionOf(r), "kind": strings.TrimSuffix(listKinds[path.Base(r.URL.Path)], "List"),
			"metadata": map[string]any{"resourceVersion": "1", "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
		})
	}
	if len(s.coming) > 0 && isIn(pathOf(s.coming[0]), r) {
		for _, object := range s.coming {
			s.objects[pathOf(object)] = object
			changes <- object
		}
		s.coming = nil
	}
	s.mu.Unlock()
	_ = flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case object := <-changes:
			if isIn(pathOf(object), r) {
				send("ADDED", object.Object)
			}
		}
	}
}

func (s *apiServer) subresource(w http.ResponseWriter, r *http.Request) {
	verb := strings.Join(strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/subresources.kubevirt.io/v1/"), "/")[4:], "/")
	switch {
	case strings.Contains(r.URL.Path, "/vm-ends/"):
		s.stream(w, r, greet)
	case verb == "console":
		s.stream(w, r, s.serveConsole)
	case verb == "vnc" && strings.Contains(r.URL.Path, "/vm-painted/"):
		s.stream(w, r, serveScreen)
	case verb == "vnc":
		s.stream(w, r, serveVNC)
	case strings.HasPrefix(verb, "portforward/"):
		s.stream(w, r, serveEcho)
	case r.Method == http.MethodPut:
		w.WriteHeader(http.StatusAccepted)
	default:
		notFound(w, "virtualmachineinstances.kubevirt.io", verb)
	}
}

func (s *apiServer) stream(w http.ResponseWriter, r *http.Request, guest func(*websocket.Conn)) {
	// The guest is counted before its answer is sent: a client may come and go before this continues.
	s.guests.Add(1)
	defer s.guests.Done()
	upgrader := websocket.Upgrader{Subprotocols: []string{nodeapi.StreamProtocol}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if conn.Subprotocol() != nodeapi.StreamProtocol {
		return
	}
	guest(conn)
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}

// The shell echoes its input and ends with it. It prints to two streams, and finally its exit status, which
// virtctl does not show.
func (s *apiServer) attach(w http.ResponseWriter, r *http.Request) {
	s.guests.Add(1)
	defer s.guests.Done()
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	send := func(channel byte, text string) {
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, text...))
	}
	send(1, "shell> ")
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		text := string(message[1:])
		if message[0] == 0 && text == "\x04" {
			break
		}
		send(1, text)
	}
	send(2, "bye\n")
	send(3, `{"status":"Success"}`)
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}

func greet(conn *websocket.Conn) {
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("booting\nready: cirros\nguest login: "))
}

// serveConsole greets, echoes, and hangs up after "exit".
func (s *apiServer) serveConsole(conn *websocket.Conn) {
	greet(conn)
	for left := false; !left; {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.typed.Write(message)
		left = strings.Contains(s.typed.String(), "exit")
		s.mu.Unlock()
		_ = conn.WriteMessage(websocket.BinaryMessage, message)
	}
}

func serveVNC(conn *websocket.Conn) {
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("RFB 003.008\n"))
	serveEcho(conn)
}

// serveScreen shows one white pixel to every client, in the protocol's order.
func serveScreen(conn *websocket.Conn) {
	const hello, security = "RFB 003.008\n", "\x01\x01\x00\x00\x00\x00"
	const size = "\x00\x01\x00\x01" + "0123456789abcdef" + "\x00\x00\x00\x00"
	const update = "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00" + "\xff\xff\xff\x00"
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte(hello+security+size+update))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			return
		}
	}
}

// serveEcho answers each message by one message, so that a cut or joined datagram would be noticed.
func serveEcho(conn *websocket.Conn) {
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte("echo:"), message...))
	}
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func refuse(w http.ResponseWriter, code int32, message string, reason metav1.StatusReason) {
	writeJSON(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Message: message, Reason: reason,
	})
}

func notFound(w http.ResponseWriter, kind, name string) {
	writeJSON(w, http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("%s.kubevirt.io %q not found", strings.TrimSuffix(kind, ".kubevirt.io"), name),
		Details: &metav1.StatusDetails{Name: name, Group: "kubevirt.io", Kind: kind},
	})
}
