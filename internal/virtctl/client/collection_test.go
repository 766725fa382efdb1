package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func serve(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAListIsReadPageByPage(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		next := ""
		if r.URL.Query().Get("continue") == "" {
			next = "second"
		}
		fmt.Fprintf(w, `{"metadata": {"continue": %q}, "items": [{"metadata": {"name": "a%d"}, "spec": {"size": 9007199254740993}}, {"metadata": {"name": "b"}}]}`, next, len(asked))
	})
	var names []string
	list := List{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "lab", Labels: "a=b", Fields: "c=d"}
	err := c.EachObject(t.Context(), list, func(o *unstructured.Unstructured) bool {
		names = append(names, o.GetName())
		if size, found, _ := unstructured.NestedInt64(o.Object, "spec", "size"); found && size != 9007199254740993 {
			t.Errorf("a number is rounded: %d", size)
		}
		return len(names) < 3
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/api/v1/namespaces/lab/pods?fieldSelector=c%3Dd&labelSelector=a%3Db&limit=50",
		"/api/v1/namespaces/lab/pods?continue=second&fieldSelector=c%3Dd&labelSelector=a%3Db&limit=50",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a1", "b", "a2"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestAnObjectOfAGroupWithoutANamespace(t *testing.T) {
	path := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		w.WriteHeader(http.StatusForbidden)
	})
	err := c.EachObject(t.Context(), List{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}, nil)
	if path != "/apis/apps/v1/deployments" || err == nil {
		t.Errorf("asked %s, got %v", path, err)
	}
}

func TestALongAnswerIsRefused(t *testing.T) {
	if _, err := bounded(strings.NewReader("12345"), 4); err == nil {
		t.Error("a long answer is taken")
	}
	if text, err := bounded(strings.NewReader("1234"), 4); err != nil || string(text) != "1234" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestAListThatDoesNotEnd(t *testing.T) {
	for name, next := range map[string]func(page int) string{
		"one token again and again": func(int) string { return "same" },
		"always another token":      func(page int) string { return fmt.Sprint(page) },
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				pages++
				fmt.Fprintf(w, `{"metadata": {"continue": %q}}`, next(pages))
			})
			err := c.EachObject(t.Context(), List{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, nil)
			if !errors.Is(err, errEndless) || pages > maxPages {
				t.Errorf("%d pages, %v", pages, err)
			}
		})
	}
}

func TestOnlyTheEndOfALogIsLeft(t *testing.T) {
	asked := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		_, _ = w.Write([]byte(strings.Repeat("first\n", 500) + "the last\n"))
	})
	pod := &unstructured.Unstructured{Object: map[string]any{}}
	pod.SetName("p")
	pod.SetNamespace("lab")
	text, err := c.Log(t.Context(), pod, "compute", true, 1000)
	if err != nil || len(text) > 1000 || len(text) < 990 || !strings.HasSuffix(string(text), "first\nthe last\n") || !strings.HasPrefix(string(text), "first\n") {
		t.Errorf("%d bytes, %v: %s", len(text), err, text)
	}
	if want := "/api/v1/namespaces/lab/pods/p/log?container=compute&previous=true&tailLines=10&timestamps=true"; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
}

func TestTheEndOfAText(t *testing.T) {
	for name, c := range map[string]struct {
		text, want    string
		limit, atMost int
	}{
		"a short one":        {"a\nb\n", "a\nb\n", 4, 10},
		"lines that fit":     {"aa\nb\nc\n", "b\nc\n", 4, 10},
		"a line is not cut":  {"aaa\nb\nc\n", "b\nc\n", 5, 10},
		"a line alone":       {"aaaaaaaa", "", 4, 10},
		"an empty one":       {"", "", 4, 10},
		"more than a buffer": {strings.Repeat("x\n", 1<<17) + "end\n", "x\nend\n", 6, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := endOf(strings.NewReader(c.text), c.limit, c.atMost); err != nil || string(got) != c.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if _, err := endOf(strings.NewReader("12345"), 4, 4); !errors.Is(err, errTooLong) {
		t.Errorf("a text that is too long: %v", err)
	}
}

func TestTheOutputOfACommand(t *testing.T) {
	const success, failure = "\x03" + `{"status":"Success"}`, "\x03" + `{"status":"Failure","message":"exit code 1"}`
	for name, c := range map[string]struct {
		messages   []string
		want, fail string
	}{
		"it prints":                        {[]string{"\x01one\n", "", "\x02aside", "\x01two\n", success}, "one\ntwo\n", ""},
		"it fails":                         {[]string{"\x01one\n", "\x02no such verb", failure}, "", "exit code 1: no such verb"},
		"it prints too much":               {[]string{"\x01" + strings.Repeat("x", 300)}, "", "too long"},
		"the connection ends before it":    {[]string{"\x01one\n"}, "", "reading what the command prints"},
		"its status can't be read":         {[]string{"\x03x"}, "", "exit status"},
		"no message counts after its end":  {[]string{success, "\x01late"}, "", ""},
		"an unknown stream is not printed": {[]string{"\x07x", "\x01a", success}, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if want := "/api/v1/namespaces/lab/pods/p/exec?command=a&command=b&container=compute&stderr=true&stdout=true"; r.URL.RequestURI() != want {
					t.Errorf("asked %s", r.URL.RequestURI())
				}
				upgrader := websocket.Upgrader{Subprotocols: []string{attachProtocol}}
				conn, err := upgrader.Upgrade(w, r, nil)
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				for _, message := range c.messages {
					_ = conn.WriteMessage(websocket.BinaryMessage, []byte(message))
				}
			})
			out, err := client.Output(t.Context(), "lab", "p", "compute", 200, "a", "b")
			switch {
			case c.fail == "" && (err != nil || string(out) != c.want):
				t.Errorf("got %q, %v", out, err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("got %v, want %q", err, c.fail)
			}
		})
	}
}
