package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/greeting"
)

const (
	// maxAnswer bounds the answer to one call, such as a page of a list.
	maxAnswer = 64 << 20
	// answerTooLarge tells the pages to ask for fewer objects, and so does an answer that breaks off.
	answerTooLarge metav1.StatusReason = "AnswerTooLarge"
	// maxSentence bounds an error that is no Status.
	maxSentence = 1 << 10
)

// pass judges a request and passes its call to the API server.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) error {
	upgrade, err := wantsUpgrade(r.Header)
	if err != nil {
		return err
	}
	secret, protocol := r.Header.Get(sessionHeader), ""
	if upgrade {
		// A page can't set another header of a WebSocket.
		if protocol, secret, err = protocols(r.Header); err != nil {
			return err
		}
	}
	one, err := s.find(r, secret)
	if err != nil {
		return err
	}
	c, err := judge(r.Method, r.RequestURI, upgrade)
	if err != nil {
		return err
	}
	if upgrade && protocol != string(c.answer) {
		return malformed("the WebSocket of %s offers the subprotocol %q: write %q", c.path, protocol, c.answer)
	}
	counted := pending
	if upgrade {
		counted = streams
	}
	leave, err := admit(w, r, one, counted)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(one.ctx, cancel)()
	if upgrade {
		return s.passStream(ctx, w, r, c, one)
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return s.passCall(ctx, w, r, c, one)
}

// admit counts a stream or a request of a session until leave is called. Meanwhile its connection makes no room for
// strangers, and is of no use any more when the session ends: what is not sent or read by then is given up.
func admit(w http.ResponseWriter, r *http.Request, one *session, which string) (leave func(), err error) {
	release, err := one.enter(which)
	if err != nil {
		return nil, err
	}
	caller, bounded := greeting.CallerOf(r.Context())
	if bounded {
		caller.Proven()
		caller.Leave()
	}
	connection := http.NewResponseController(w)
	stop := context.AfterFunc(one.ctx, func() {
		past := time.Unix(1, 0)
		_, _ = connection.SetReadDeadline(past), connection.SetWriteDeadline(past) // a stream has its connection, and closes it
	})
	return func() {
		stop()
		if bounded && which != streams {
			caller.Return()
		}
		release()
	}, nil
}

// send makes the request of a call and returns the answer.
func (s *Server) send(ctx context.Context, c call, header http.Header, body []byte) (*http.Response, error) {
	target := *s.options.Upstream
	target.Path, target.RawPath, target.RawQuery = strings.TrimSuffix(target.Path, "/")+c.path, "", c.query
	request := (&http.Request{
		Method: c.method, URL: &target, Host: target.Host, Header: header, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if len(body) > 0 {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	response, err := s.options.Transport.RoundTrip(request)
	if err == nil {
		return response, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the API server did not answer %s %s within %v: try again", c.method, c.path, patience)
	}
	var unsent *url.Error
	if errors.As(err, &unsent) {
		err = unsent.Err
	}
	return nil, unavailable("the API server can't be reached: %v: check that the cluster runs; the page tries again by itself", err)
}

func (s *Server) passCall(ctx context.Context, w http.ResponseWriter, r *http.Request, c call, one *session) error {
	var body []byte
	if c.method != http.MethodGet {
		leave, err := one.enter(changes)
		if err != nil {
			return err
		}
		defer leave()
		if body, err = readBody(w, r, maxBody); err != nil {
			return err
		}
	}
	header, err := sentHeader(c, r.Header, len(body) > 0)
	if err != nil {
		return err
	}
	authorize(header, one.token)
	response, err := s.send(ctx, c, header, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return relay(w, response, c, one)
}

// relay writes an answer of the API server as the type that its call has, whatever type it says it is.
func relay(w http.ResponseWriter, response *http.Response, c call, one *session) error {
	kind := c.answer
	switch {
	case response.StatusCode == http.StatusUnauthorized && one.token != "":
		return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the cluster no longer accepts your token: sign in again")
	case response.StatusCode == http.StatusUnauthorized:
		// To the pages that code means that their session is over.
		return unavailable("the cluster does not accept the credentials of your kubeconfig: log in again, and start the web console again if that does not help")
	case response.StatusCode >= http.StatusBadRequest && isType(response.Header, jsonAnswer):
		kind = jsonAnswer
	case response.StatusCode >= http.StatusBadRequest:
		return sentence(response, c)
	case response.StatusCode >= http.StatusMultipleChoices || response.StatusCode < http.StatusOK:
		return unavailable("the API server answered %s %s with %d, which the web console does not follow", c.method, c.path, response.StatusCode)
	case response.ContentLength == 0:
		// virt-api answers verbs without a body.
	case !isType(response.Header, kind):
		return unavailable("the API server answered %s %s with the type %q instead of %s", c.method, c.path, plain(response.Header.Get("Content-Type")), kind)
	}
	if response.ContentLength > maxAnswer {
		return refusal(http.StatusBadGateway, answerTooLarge,
			"the answer to %s %s has %d bytes: ask for fewer objects at a time (limit)", c.method, c.path, response.ContentLength)
	}
	copyAnswerHeader(w.Header(), response.Header)
	w.Header().Set("Content-Type", string(kind))
	w.WriteHeader(response.StatusCode)
	n, err := io.Copy(w, io.LimitReader(response.Body, maxAnswer+1))
	if err != nil || n > maxAnswer {
		// The browser sees that the answer is not whole.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// sentence returns an error that is no Status, such as one of a proxy before the API server, as one.
func sentence(response *http.Response, c call) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSentence))
	if err != nil {
		return unavailable("reading the answer to %s %s: %v", c.method, c.path, err)
	}
	return refusal(int32(response.StatusCode), metav1.StatusReasonUnknown, "the API server answered %s %s with %d: %s", c.method, c.path, response.StatusCode, plain(string(text)))
}

// plain returns a text of one line without control characters.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text))
}

func (s *Server) passStream(ctx context.Context, w http.ResponseWriter, r *http.Request, c call, one *session) error {
	header, err := sentHeader(c, r.Header, false)
	if err != nil {
		return err
	}
	authorize(header, one.token)
	if c.answer == watchAnswer {
		// kube-apiserver refuses a watch by WebSocket without an origin, and cares for none.
		header.Set("Origin", s.options.Upstream.Scheme+"://"+s.options.Upstream.Host)
	}
	response, err := s.send(ctx, c, header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusSwitchingProtocols {
		if response.StatusCode < http.StatusBadRequest {
			return unavailable("the API server answered the WebSocket of %s with %d", c.path, response.StatusCode)
		}
		c.answer = jsonAnswer
		return relay(w, response, c, one)
	}
	far, isStream := response.Body.(io.ReadWriteCloser)
	if !isStream {
		return unavailable("the WebSocket of %s can't be used: the connection to the API server is not of HTTP/1.1", c.path)
	}
	if got := response.Header.Get("Sec-Websocket-Protocol"); c.answer == streamAnswer && got != string(streamAnswer) {
		return unavailable("the WebSocket of %s has the subprotocol %q instead of %q", c.path, plain(got), c.answer)
	}
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("taking the connection of a WebSocket over: %w", err)
	}
	defer func() { _ = near.Close() }()
	if err := accept(near, w.Header(), response.Header.Get("Sec-Websocket-Accept"), c.answer); err != nil {
		return nil // the browser is gone
	}
	join(ctx, near, buffered.Reader, far)
	return nil
}

// accept writes the answer that begins a WebSocket.
func accept(near net.Conn, header http.Header, key string, protocol answerKind) error {
	begin := http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header.Clone()}
	begin.Header.Set("Connection", "Upgrade")
	begin.Header.Set("Upgrade", "websocket")
	begin.Header.Set("Sec-WebSocket-Accept", plain(key))
	begin.Header.Set("Sec-WebSocket-Protocol", string(protocol))
	return begin.Write(near)
}

// join copies both ways until one end or the context ends, and closes both.
func join(ctx context.Context, near net.Conn, fromNear *bufio.Reader, far io.ReadWriteCloser) {
	closeBoth := func() { _, _ = near.Close(), far.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(far, fromNear) // an end of either side ends the stream
		closeBoth()
	}()
	_, _ = io.Copy(near, far)
	closeBoth()
	<-sent
}
