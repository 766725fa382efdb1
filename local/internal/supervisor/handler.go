package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// Progress is one line of the answer. The last has Done set.
type Progress struct {
	Elapsed time.Duration `json:"elapsed"`
	Text    string        `json:"text,omitempty"`
	Error   string        `json:"error,omitempty"`
	Done    bool          `json:"done,omitempty"`
}

type report func(format string, args ...any)

// A running command ends with its request or with the supervisor.
func (s *Supervisor) handler(life context.Context, end context.CancelFunc) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(context.Context, *http.Request, report) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			stream(w, func(say report) error {
				s.up.Lock()
				defer s.up.Unlock()
				return do(ctx, r, say)
			})
		})
	}
	handle("POST /up", func(ctx context.Context, _ *http.Request, say report) error { return s.bringUp(ctx, life, say) })
	handle("POST /images", func(ctx context.Context, _ *http.Request, say report) error { return s.syncImages(ctx, say) })
	handle("POST /nodes/{node}/kill", func(ctx context.Context, r *http.Request, say report) error {
		return s.killNode(ctx, r.PathValue("node"), say)
	})
	handle("POST /nodes/{node}/start", func(ctx context.Context, r *http.Request, say report) error {
		return s.startNode(ctx, life, r.PathValue("node"), say)
	})
	mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { end() })
	return mux
}

func stream(w http.ResponseWriter, do func(report) error) {
	began := time.Now()
	encoder := json.NewEncoder(w)
	send := func(p Progress) {
		p.Elapsed = time.Since(began)
		if err := encoder.Encode(p); err != nil {
			fmt.Fprintf(os.Stderr, "answering a command: %v\n", err)
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	err := do(func(format string, args ...any) { send(Progress{Text: fmt.Sprintf(format, args...)}) })
	last := Progress{Done: true}
	if err != nil {
		last.Error = err.Error()
	}
	send(last)
}
