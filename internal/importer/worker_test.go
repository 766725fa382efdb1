package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/test/shipped"
)

// patience bounds one wait on a busy machine.
const patience = 4 * time.Minute

// asWorker turns this program into the worker: the tests run it as a process of its own, as the kubelet does.
const asWorker = "DRYDOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) == "" {
		if err := shipped.OnPath(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := Main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// The folders outlive the worker's processes.
type pod struct {
	t        *testing.T
	root     string
	task     transfer.Task
	job      job.Places
	progress string
}

func newPod(t *testing.T, task transfer.Task) *pod {
	t.Helper()
	task.AllowedNetworks = []string{"127.0.0.0/8"}
	p := &pod{t: t, root: t.TempDir(), task: task, progress: "127.0.0.1:0"}
	p.job = job.Under(p.root)
	for _, dir := range []string{p.job.Dir, p.job.Work, p.job.CA, p.job.Credentials, p.job.Headers} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(p.job.Device), 0o755); err != nil {
		t.Fatal(err)
	}
	if p.task.Kind == "" {
		p.task.Kind = transfer.KindHTTP
	}
	return p
}

// command is the worker, not yet started.
func (p *pod) command() *exec.Cmd {
	p.t.Helper()
	task, err := json.Marshal(p.task)
	if err != nil {
		p.t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), program, "-root", p.root, "-progress", p.progress, "-termination", p.termination())
	cmd.Env = append(os.Environ(), asWorker+"=1", transfer.TaskEnv+"="+string(task))
	return cmd
}

func (p *pod) termination() string { return filepath.Join(p.root, "termination-log") }

// run runs a worker to its end.
func (p *pod) run() transfer.Result {
	p.t.Helper()
	_ = os.Remove(p.termination())
	cmd := p.command()
	var log bytes.Buffer
	cmd.Stderr = &log
	err := cmd.Run()
	result := p.result()
	if (err == nil) != (result.Reason == transfer.ReasonCompleted) {
		p.t.Errorf("the worker ended with %v and the reason %s", err, result.Reason)
	}
	if strings.Contains(log.String(), "goroutine ") {
		p.t.Errorf("the worker panicked: %s", &log)
	}
	return result
}

func (p *pod) result() transfer.Result {
	p.t.Helper()
	data, err := os.ReadFile(p.termination())
	if err != nil {
		p.t.Fatal(err)
	}
	var result transfer.Result
	if err := json.Unmarshal(data, &result); err != nil {
		p.t.Fatal(err)
	}
	return result
}

// disk returns the finished disk.
func (p *pod) disk() []byte {
	p.t.Helper()
	name := filepath.Join(p.job.Dir, "disk.img")
	if p.task.Block {
		name = p.job.Device
	}
	data, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// left lists the claim's folder.
func (p *pod) left() []string {
	p.t.Helper()
	entries, err := os.ReadDir(p.job.Dir)
	if err != nil {
		p.t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// server serves one file, and counts the bytes that it sends.
type server struct {
	*httptest.Server
	handler atomic.Pointer[http.Handler]
	sent    atomic.Int64
	mu      sync.Mutex
	// slow is the number of bytes after which it hangs, until release is closed; 0 is all.
	slow    int64
	release chan struct{}
}

func serve(t *testing.T, content []byte, tag string) *server {
	t.Helper()
	return newServer(t, func(s *server, w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", strconv.Quote(tag))
		}
		http.ServeContent(&counting{ResponseWriter: w, server: s, request: r}, r, "", time.Time{}, bytes.NewReader(content))
	})
}

func newServer(t *testing.T, answer func(*server, http.ResponseWriter, *http.Request)) *server {
	t.Helper()
	s := &server{release: make(chan struct{})}
	s.become(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) }))
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) become(handler http.Handler) { s.handler.Store(&handler) }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.handler.Load()).ServeHTTP(w, r)
}

// The file does not fit into memory.
func serveFile(t *testing.T, name string) *server {
	t.Helper()
	return newServer(t, func(s *server, w http.ResponseWriter, r *http.Request) {
		http.ServeFile(&counting{ResponseWriter: w, server: s, request: r}, r, name)
	})
}

type counting struct {
	http.ResponseWriter
	server  *server
	request *http.Request
}

func (c *counting) Write(p []byte) (int, error) {
	c.server.mu.Lock()
	slow := c.server.slow
	c.server.mu.Unlock()
	// Pieces that are requested beside the stream do not hang.
	beside := !strings.HasSuffix(c.request.Header.Get("Range"), "-")
	if !beside && slow > 0 && c.server.sent.Load() >= slow {
		select {
		case <-c.server.release:
		case <-c.request.Context().Done():
		}
	}
	n, err := c.ResponseWriter.Write(p)
	c.server.sent.Add(int64(n))
	return n, err
}

func cutting(handler http.Handler, after int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&cutWriter{ResponseWriter: w, left: after}, r)
	})
}

type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}
