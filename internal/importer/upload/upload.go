// Package upload is the worker that receives content: an image that a user uploads through virt-api's proxy, or the
// clone of another claim. It serves HTTPS and identifies its callers by their certificates.
//
//	       HEAD: 200          503             409
//	──> waiting ──POST──> receiving ──────> done ──> the worker ends
//	       ^                  |
//	       └──── failed ──────┘
//
// It accepts one sender at a time; a second one is refused, not queued. An upload that fails leaves nothing that
// looks complete, and the sender gets the error. The next one starts from the beginning: nothing proves that the file
// is the same. A failure ends the worker only after an early response (UploadAsyncPath), so that the DataVolume shows
// it. If the worker crashes after the disk was complete, the next one detects that and succeeds.
//
// It must not know formats: package fill makes disks from the content.
package upload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/fill"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/target"
)

const stepWaiting = "waiting for an upload"

const shutdownTimeout = 10 * time.Second

// Run serves until the claim is filled.
func Run(ctx context.Context, j *job.Job) (transfer.Result, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(transfer.UploadPort))
	if err != nil {
		return transfer.Result{}, fmt.Errorf("listening for uploads: %w", err)
	}
	return Serve(ctx, j, listener)
}

// Serve is Run with a listener, which it closes.
func Serve(ctx context.Context, j *job.Job, listener net.Listener) (transfer.Result, error) {
	defer listener.Close()
	result, finished, err := fill.Finished(j)
	if err != nil || finished {
		return result, err
	}
	if err := target.RefuseContent(j); err != nil {
		return transfer.Result{}, err
	}
	name, err := workertls.Name(j.Places.TLS)
	if err != nil {
		return transfer.Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{ctx: ctx, job: j, name: name, ended: make(chan outcome, 1)}
	s.wait()
	mux := http.NewServeMux()
	s.route(mux, transfer.UploadPath, workertls.Proxy, s.take(body, false))
	s.route(mux, transfer.UploadAsyncPath, workertls.Proxy, s.take(body, true))
	s.route(mux, transfer.UploadFormPath, workertls.Proxy, s.take(form, false))
	s.route(mux, transfer.UploadFormAsyncPath, workertls.Proxy, s.take(form, true))
	s.route(mux, transfer.ClonePath, workertls.Source, s.take(clone, false))
	web := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(tls.NewListener(listener, workertls.ServerConfig(j.Places.TLS))) }()
	select {
	case err := <-served:
		return transfer.Result{}, fmt.Errorf("serving uploads: %w", err)
	case <-ctx.Done():
		return transfer.Result{}, errors.Join(context.Cause(ctx), web.Close())
	case end := <-s.ended:
		farewell, cancel := context.WithTimeout(ctx, shutdownTimeout)
		defer cancel()
		// The disk is complete even if the sender has not read the response.
		_ = web.Shutdown(farewell)
		return end.result, end.err
	}
}

type state int

const (
	idle state = iota
	receiving
	done
)

type outcome struct {
	result transfer.Result
	err    error
}

type server struct {
	// ctx is the worker's. A request's context ends when its sender disconnects.
	ctx  context.Context
	job  *job.Job
	name string

	mu    sync.Mutex
	state state
	ended chan outcome
}

func (s *server) route(mux *http.ServeMux, path string, role workertls.Role, take http.HandlerFunc) {
	allowed := func(do http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if workertls.Caller(r.TLS, s.name) != role {
				http.Error(w, "this worker takes nothing from you at "+path, http.StatusForbidden)
				return
			}
			do(w, r)
		}
	}
	mux.HandleFunc("HEAD "+path, allowed(s.head))
	mux.HandleFunc("POST "+path, allowed(take))
	mux.HandleFunc("PUT "+path, allowed(take))
}

func (s *server) head(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.WriteHeader(s.state.code())
}

func (s state) code() int {
	switch s {
	case idle:
		return http.StatusOK
	case done:
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

func (s *server) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = idle
	s.job.Meter.Reset()
	s.job.Meter.Step(stepWaiting)
	s.job.Meter.Ready(true)
}

// begin makes a sender the only one, or returns the status code of a refusal.
func (s *server) begin() (refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != idle {
		return s.state.code()
	}
	s.state = receiving
	s.job.Meter.Ready(false)
	return 0
}

func (s *server) finish(o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = done
	s.ended <- o
}

type reader func(w http.ResponseWriter, r *http.Request) (*incoming, error)

func (s *server) take(read reader, async bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Range") != "" {
			refuse(w, r, "an upload can't be resumed; send the whole image", http.StatusBadRequest)
			return
		}
		if code := s.begin(); code != 0 {
			refuse(w, r, refusals[code], code)
			return
		}
		from, err := read(w, r)
		if err != nil {
			s.wait()
			refuse(w, r, err.Error(), http.StatusBadRequest)
			return
		}
		ended := make(chan outcome, 1)
		go func() {
			result, err := fill.Fill(s.ctx, s.job, from)
			ended <- outcome{result, err}
		}()
		o, late := await(ended, from, async)
		if late {
			// The sender may leave; a later error ends the worker.
			go func() { s.finish(<-ended) }()
			w.WriteHeader(http.StatusOK)
			return
		}
		if o.err == nil {
			w.WriteHeader(http.StatusOK)
			s.finish(o)
			return
		}
		if from.opened != nil {
			<-from.opened.closed // the engine has stopped reading
		}
		fault := job.FaultOf(o.err)
		s.wait()
		s.job.Meter.Step(stepWaiting + "; the last one failed: " + fault.Message)
		refuse(w, r, fault.Message, codeOf(fault.Reason))
	}
}

// await waits for the end of an upload; with async only until settleTimeout after all was read, in which most images
// end and the sender still gets an error.
func await(ended <-chan outcome, from *incoming, async bool) (o outcome, late bool) {
	if !async {
		return <-ended, false
	}
	select {
	case o = <-ended:
		return o, false
	case <-from.read:
	}
	select {
	case o = <-ended:
		return o, false
	case <-time.After(settleTimeout):
		return outcome{}, true
	}
}

var refusals = map[int]string{
	http.StatusServiceUnavailable: "another upload to this claim is under way",
	http.StatusConflict:           "the claim is filled already",
}

func codeOf(reason transfer.Reason) int {
	switch reason {
	case transfer.ReasonTooLarge:
		return http.StatusRequestEntityTooLarge
	case transfer.ReasonNoSpace:
		return http.StatusInsufficientStorage
	case transfer.ReasonInternal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}
