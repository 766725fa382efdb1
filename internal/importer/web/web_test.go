package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

func newJob(t *testing.T, task transfer.Task, files map[string]string) *job.Job {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	task.AllowedNetworks = append(task.AllowedNetworks, "127.0.0.0/8")
	return &job.Job{Task: task, Places: job.Under(root), Meter: job.NewMeter()}
}

func TestOnlyTheServerThatTheUserNamedLearnsWhatHeGave(t *testing.T) {
	told := map[string]http.Header{}
	note := func(name string, next http.Handler) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			told[name] = r.Header.Clone()
			next.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		return s
	}
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Unix(1e9, 0), strings.NewReader("content"))
	})
	other := note("other", file)
	mux := http.NewServeMux()
	mux.Handle("/here", http.RedirectHandler("/there", http.StatusFound))
	mux.Handle("/there", http.RedirectHandler(other.URL, http.StatusFound))
	named := note("named", mux)

	source, err := New(newJob(t, transfer.Task{
		URL: named.URL + "/here", Credentials: true, Headers: []string{"X-Public: a"}, SecretHeaders: true,
	}, map[string]string{
		"credentials/accessKeyId": "joe\n", "credentials/secretKey": "pass",
		"headers/0/token": "X-Secret: b\n", "headers/0/..data/token": "X-Twice: c",
	}))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(stream.Body); err != nil || string(content) != "content" {
		t.Errorf("got %q, %v", content, err)
	}
	if got := told["named"]; got.Get("Authorization") == "" || got.Get("X-Public") != "a" || got.Get("X-Secret") != "b" || got.Get("X-Twice") != "" {
		t.Errorf("the named server was told %v", got)
	}
	if got := told["other"]; got == nil || got.Get("Authorization") != "" || got.Get("X-Public") != "" || got.Get("X-Secret") != "" {
		t.Errorf("the other server was told %v", got)
	}
}

func TestAServersCertificateIsCheckedUnlessTheUserSaysOtherwise(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log the refused handshake
	for _, insecure := range []bool{false, true} {
		source, err := New(newJob(t, transfer.Task{URL: server.URL, Insecure: insecure}, nil))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := source.Open(t.Context(), 0)
		if (err == nil) != insecure {
			t.Errorf("insecure %v: got %v", insecure, err)
		}
		if err == nil {
			_ = stream.Body.Close()
		}
	}
}

type changing struct {
	content, tag string
	date         time.Time
}

func (c *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.tag != "" {
		w.Header().Set("ETag", c.tag)
	}
	http.ServeContent(w, r, "", c.date, strings.NewReader(c.content))
}

func TestAVersionIsReadToItsEndOrNotAtAll(t *testing.T) {
	for name, c := range map[string]*changing{
		"by its ETag":                  {content: "0123456789", tag: `"v1"`},
		"by its date":                  {content: "0123456789", date: time.Unix(1e9, 0)},
		"by its date for its weak tag": {content: "0123456789", date: time.Unix(1e9, 0), tag: `W/"v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c)
			defer s.Close()
			source, err := New(newJob(t, transfer.Task{URL: s.URL}, nil))
			if err != nil {
				t.Fatal(err)
			}
			stat, err := source.Stat(t.Context())
			if err != nil || !stat.Ranges || stat.Size != 10 || stat.Version == "" {
				t.Fatalf("got %+v, %v", stat, err)
			}
			stream, err := source.Open(t.Context(), 7)
			if err != nil || stream.Offset != 7 || stream.Size != 10 || stream.Version != stat.Version {
				t.Fatalf("from 7 on: got %+v, %v", stream, err)
			}
			if rest, err := io.ReadAll(stream.Body); err != nil || string(rest) != "789" {
				t.Errorf("from 7 on: got %q, %v", rest, err)
			}
			readsPieces(t, source)

			c.content, c.tag, c.date = "abcdefghij", strings.Replace(c.tag, "1", "2", 1), c.date.Add(time.Hour)
			readsNothingOf(t, source, stat.Version)
		})
	}
}

// readsNothingOf fails when the source still reads a version that is gone from the server.
func readsNothingOf(t *testing.T, source *Source, version string) {
	t.Helper()
	piece := make([]byte, 3)
	if err := source.ReadRange(t.Context(), piece, 2); err == nil || job.FaultOf(err).Reason != transfer.ReasonCut {
		t.Errorf("a piece of another version: got %q, %v", piece, err)
	}
	stream, err := source.Open(t.Context(), 7)
	if err != nil || stream.Offset != 0 || stream.Version == version {
		t.Errorf("from 7 on of another version: got %+v, %v", stream, err)
	}
}

func readsPieces(t *testing.T, source *Source) {
	t.Helper()
	piece := make([]byte, 3)
	if err := source.ReadRange(t.Context(), piece, 2); err != nil || !bytes.Equal(piece, []byte("234")) {
		t.Errorf("a piece: got %q, %v", piece, err)
	}
	if err := source.ReadRange(t.Context(), piece, 8); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a piece behind the end: got %v", err)
	}
}

func TestAServerWithoutRanges(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		_, _ = io.WriteString(w, "0123456789")
	}))
	defer s.Close()
	source, err := New(newJob(t, transfer.Task{URL: s.URL}, nil))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), 0)
	if err != nil || stream.Ranges || stream.Size != 10 {
		t.Errorf("got %+v, %v", stream, err)
	}
}

// The server answers 416 to a range from the start, and sends the whole file.
func TestAServerThatRefusesRanges(t *testing.T) {
	content := "0123456789"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	defer s.Close()
	source, err := New(newJob(t, transfer.Task{URL: s.URL}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if said, err := source.Stat(t.Context()); err != nil || said.Ranges || said.Size != 10 {
		t.Errorf("it is said to be %+v, %v", said, err)
	}
	for _, content = range []string{"0123456789", ""} {
		stream, err := source.Open(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(stream.Body)
		if err := errors.Join(err, stream.Body.Close()); err != nil || string(read) != content || stream.Ranges {
			t.Errorf("got %q of %+v, %v", read, stream, err)
		}
	}
}

// TestAServerMayRedirectOften: as often as curl allows.
func TestAServerMayRedirectOften(t *testing.T) {
	const times = 40
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n < times {
			http.Redirect(w, r, "/?n="+strconv.Itoa(n+1), http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "found")
	}))
	defer s.Close()
	source, err := New(newJob(t, transfer.Task{URL: s.URL}, nil))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(stream.Body); err != nil || string(read) != "found" {
		t.Errorf("got %q, %v", read, err)
	}
	_ = stream.Body.Close()
}

// mirrors is a redirector to servers of the same content with other ETags, which it names by turns.
type mirrors struct {
	asked   int
	servers []*httptest.Server
	// ticket must be in the address of a file.
	ticket string
	told   []http.Header
}

func (m *mirrors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := m.servers[m.asked%len(m.servers)]
	m.asked++
	http.Redirect(w, r, to.URL+"/?ticket="+m.ticket, http.StatusFound)
}

func (m *mirrors) add(t *testing.T, tag string) {
	t.Helper()
	file := &changing{content: "0123456789", tag: tag}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.told = append(m.told, r.Header.Clone())
		if r.URL.Query().Get("ticket") != m.ticket {
			http.Error(w, "expired", http.StatusForbidden)
			return
		}
		file.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	m.servers = append(m.servers, s)
}

func TestAFileIsReadFromOneMirrorToItsEnd(t *testing.T) {
	m := &mirrors{ticket: "1"}
	m.add(t, `"a"`)
	m.add(t, `"b"`)
	redirector := httptest.NewServer(m)
	defer redirector.Close()
	source, err := New(newJob(t, transfer.Task{URL: redirector.URL, Credentials: true, Headers: []string{"X-Secret: a"}},
		map[string]string{"credentials/accessKeyId": "joe", "credentials/secretKey": "pass"}))
	if err != nil {
		t.Fatal(err)
	}
	reads := func(asked int, tag string) {
		t.Helper()
		readsPieces(t, source)
		stream, err := source.Open(t.Context(), 7)
		if err != nil || stream.Offset != 7 || stream.Version != tag {
			t.Fatalf("from 7 on: got %+v, %v", stream, err)
		}
		if rest, err := io.ReadAll(stream.Body); err != nil || string(rest) != "789" || stream.Body.Close() != nil {
			t.Errorf("from 7 on: got %q, %v", rest, err)
		}
		if m.asked != asked {
			t.Errorf("the redirector was asked %d times, want %d", m.asked, asked)
		}
	}
	stat := func() {
		t.Helper()
		if _, err := source.Stat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stat()
	reads(1, `"a"`)
	stat()
	reads(2, `"b"`)

	// The address expires, and the redirector names the same server again.
	m.ticket, m.asked = "2", 1
	reads(2, `"b"`)

	// The server goes away: the other one's content may be another.
	m.servers[1].Close()
	piece := make([]byte, 3)
	if err := source.ReadRange(t.Context(), piece, 2); err == nil || job.FaultOf(err).Reason != transfer.ReasonCut {
		t.Errorf("a piece of another server: got %q, %v", piece, err)
	}
	m.servers = m.servers[:1]
	stat()
	reads(4, `"a"`)
	for _, told := range m.told {
		if told.Get("Authorization") != "" || told.Get("X-Secret") != "" {
			t.Errorf("a server that the user did not name was told %v", told)
		}
	}
}

func TestWrongSourcesAreRefusedBeforeAnybodyIsAsked(t *testing.T) {
	for says, task := range map[string]transfer.Task{
		"the source's URL is no address on an HTTP or HTTPS server": {URL: "file:///etc/passwd"},
		"an extra header is not of the form 'Name: value'":          {URL: "http://host/", Headers: []string{"X: a\r\nY: b"}},
		"the source's Secret has no ":                               {URL: "http://host/", Credentials: true},
		"reading what the task needs: ":                             {URL: "http://host/", CA: true},
	} {
		_, err := New(newJob(t, task, nil))
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("got the error %v, want %q", err, says)
		}
	}
}

func TestAPasswordInTheURLIsNotRepeated(t *testing.T) {
	source, err := New(newJob(t, transfer.Task{URL: "http://joe:geheim@127.0.0.1:1/disk"}, nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = source.Open(context.Background(), 0)
	if err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("got the error %v", err)
	}
}

// The worker's own node, and a cloud's metadata service, must be out of reach for a DataVolume's author.
func TestNoImportReachesTheNodeItself(t *testing.T) {
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was called") }))
	t.Cleanup(secret.Close)
	_, port, err := net.SplitHostPort(secret.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(task transfer.Task) error {
		source, err := New(&job.Job{Task: task, Places: job.Under(t.TempDir()), Meter: job.NewMeter()})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := source.Open(t.Context(), 0)
		if err == nil {
			_ = stream.Body.Close()
		}
		return err
	}
	for _, url := range []string{secret.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://169.254.169.254/"} {
		err := fetch(transfer.Task{URL: url})
		var fault *job.Fault
		if !errors.As(err, &fault) || fault.Reason != transfer.ReasonSourceRefused || !strings.Contains(err.Error(), "imports must not call") {
			t.Errorf("%s: %v", url, err)
		}
	}

	// A redirect from an allowed server must not help.
	outside := httptest.NewUnstartedServer(http.RedirectHandler(secret.URL, http.StatusFound))
	_ = outside.Listener.Close()
	if outside.Listener, err = net.Listen("tcp", "127.7.7.7:0"); err != nil {
		t.Fatal(err)
	}
	outside.Start()
	t.Cleanup(outside.Close)
	err = fetch(transfer.Task{URL: outside.URL, AllowedNetworks: []string{"127.7.7.7/32"}})
	if err == nil || !strings.Contains(err.Error(), "imports must not call") {
		t.Errorf("a redirection to the node: %v", err)
	}
}

// A server's headers take many times their size in the worker's memory.
func TestAServersHeadersAreBounded(t *testing.T) {
	for _, length := range []int{maxHeader / 2, 2 * maxHeader} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", strings.Repeat("a", length))
			http.ServeContent(w, r, "", time.Unix(1e9, 0), strings.NewReader("content"))
		}))
		source, err := New(newJob(t, transfer.Task{URL: server.URL}, nil))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := source.Open(t.Context(), 0)
		if (err == nil) != (length < maxHeader) {
			t.Errorf("headers of %d bytes: %v", length, err)
		}
		if err == nil {
			_ = stream.Body.Close()
		}
		server.Close()
	}
}
