package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"drydock.dev/drydock/internal/rules/object/listbounds"
)

// judging counts the requests in work; none ends before release is closed.
type judging struct {
	judged  map[string]int
	release chan struct{}
	turns   http.Handler
}

func newJudging(e *entrance) *judging {
	j := &judging{judged: map[string]int{}, release: make(chan struct{})}
	j.turns = e.inTurn(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err == nil && int64(len(text)) == r.ContentLength {
			j.judged[r.Header.Get("From")]++
		}
		<-j.release
	}))
	return j
}

// send returns when the text is in work, waits or is answered.
func (j *judging) send(ctx context.Context, from, text string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(text))
	r.Header.Set("From", from)
	w := httptest.NewRecorder()
	w.Code = 0
	go j.turns.ServeHTTP(w, r)
	synctest.Wait()
	return w
}

// review is one of a user's objects that contains a text of a length.
func review(username, namespace string, length int) string {
	return `{"kind":"AdmissionReview","request":{"uid":"7","namespace":"` + namespace + `","userInfo":{"username":"` + username +
		`"},"object":{"a":"` + strings.Repeat("a", length) + `"}}}`
}

const largeReview = 3 << 20

// Nobody may wait for all reviews of one tenant: small reviews must never wait for large ones, large ones of another
// namespace and virt-controller's only for one, and a namespace's excess must be refused at once.
func TestATenantsLargeReviewsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudging(newRoom().entrance(reviews{}, smallReview))
		const controller = "system:serviceaccount:kubevirt:kubevirt-controller"
		var refused []*httptest.ResponseRecorder
		for range 40 {
			if w := j.send(t.Context(), "shop", review("tenant", "shop", largeReview)); w.Code != 0 {
				refused = append(refused, w)
			}
		}
		if j.judged["shop"] != 1 || len(refused) != 40-maxWaiting {
			t.Errorf("of a namespace's large reviews %d are judged and %d refused", j.judged["shop"], len(refused))
		}
		var answered admissionv1.AdmissionReview
		must(t, json.Unmarshal(refused[0].Body.Bytes(), &answered))
		if r := answered.Response; r == nil || r.UID != "7" || r.Allowed || r.Result.Code != http.StatusTooManyRequests {
			t.Errorf("one too many is answered %s", refused[0].Body)
		}
		j.send(t.Context(), "another's", review("other", "mine", largeReview/3))
		j.send(t.Context(), "virt-controller's", review(controller, "shop", largeReview/3))
		for range 10 {
			j.send(t.Context(), "small", review("tenant", "mine", 30<<10))
		}
		if j.judged["another's"] != 1 || j.judged["virt-controller's"] != 1 || j.judged["small"] != 10 {
			t.Errorf("judged beside them are %v", j.judged)
		}
		close(j.release)
		synctest.Wait()
		if j.judged["shop"] != maxWaiting {
			t.Errorf("%d of the namespace's were judged in the end, want %d", j.judged["shop"], maxWaiting)
		}
	})
}

// Large reviews of many namespaces must wait for each other, and a caller that gives up must leave the queue.
func TestLargeReviewsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newRoom().entrance(reviews{}, smallReview)
		j := newJudging(turns)
		impatient, leave := context.WithCancel(t.Context())
		j.send(t.Context(), "large", review("a", "one", largeReview))
		left := j.send(impatient, "large", review("a", "two", largeReview))
		j.send(t.Context(), "large", review("a", "three", largeReview))
		if j.judged["large"] != 1 {
			t.Errorf("%d are judged, want 1", j.judged["large"])
		}
		leave()
		synctest.Wait()
		if answered := left.Body.String(); !strings.Contains(answered, "too many large objects") {
			t.Errorf("who has left is answered %s", answered)
		}
		close(j.release)
		synctest.Wait()
		if j.judged["large"] != 2 || len(turns.room.lanes.taken) != 0 {
			t.Errorf("%d were judged, want 2; lanes %v are left", j.judged["large"], turns.room.lanes.taken)
		}
		if !turns.room.large.TryAcquire(largeRoom) || !turns.room.small.TryAcquire(smallRoom) || !turns.largeTexts.TryAcquire(textsAtATime) {
			t.Error("not all room was given back")
		}
	})
}

// A short text with many values must count for its values.
func TestAReviewCountsForItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudging(newRoom().entrance(reviews{}, smallReview))
		many := `{"request":{"uid":"7","namespace":"shop","object":{"a":[` + repeated(`[]`, listbounds.Values) + `]}}}`
		for range 2 {
			j.send(t.Context(), "many values", many)
		}
		if j.judged["many values"] != 1 {
			t.Errorf("%d reviews of %d KiB with many values are judged at one time", j.judged["many values"], len(many)>>10)
		}
		close(j.release)
	})
}

// The bodies of subresources share the same room: those of one user by turns, and streams not at all.
func TestLargeBodiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudging(newRoom().entrance(bodies{}, smallBody))
		by := func(name string) context.Context {
			return request.WithUser(t.Context(), &user.DefaultInfo{Name: name})
		}
		refused := 0
		for range 10 {
			if w := j.send(by("viewer"), "viewer", strings.Repeat(" ", 1<<20)); w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
		j.send(by("viewer"), "small", `{}`)
		j.send(by("another"), "another", strings.Repeat(" ", 1<<20))
		j.send(by("viewer"), "without a body", "")
		if j.judged["viewer"] != 1 || refused != 10-maxWaiting || j.judged["small"] != 1 || j.judged["another"] != 1 || j.judged["without a body"] != 1 {
			t.Errorf("judged are %v, and %d refused", j.judged, refused)
		}
		close(j.release)
	})
}

// A client may ask for an upgrade with any request: it must not spare a body its turn. A stream's request has no body, and
// must not wait.
func TestABodyWithAnUpgradeTakesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudging(newRoom().entrance(bodies{}, smallBody))
		upgrade := func(method, from string, body io.Reader) *httptest.ResponseRecorder {
			ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "viewer"})
			r := httptest.NewRequestWithContext(ctx, method, "/", body)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "x")
			r.Header.Set("From", from)
			w := httptest.NewRecorder()
			w.Code = 0
			go j.turns.ServeHTTP(w, r)
			synctest.Wait()
			return w
		}
		refused := 0
		for range 10 {
			if w := upgrade(http.MethodPut, "body", strings.NewReader(strings.Repeat(" ", 3<<20))); w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
		// Of unknown length, as a chunked one.
		if w := upgrade(http.MethodPut, "chunked", io.MultiReader(strings.NewReader("{}"))); w.Code == http.StatusTooManyRequests {
			refused++
		}
		upgrade(http.MethodGet, "stream", http.NoBody)
		upgrade(http.MethodGet, "stream", strings.NewReader(strings.Repeat(" ", 3<<20)))
		if j.judged["body"] != 1 || j.judged["chunked"] != 0 || refused != 11-maxWaiting || j.judged["stream"] != 2 {
			t.Errorf("judged are %v, and %d refused", j.judged, refused)
		}
		close(j.release)
	})
}

// pipes is a listener to which dial connects.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// An endless sender must lose its room soon, and on a connection with deadlines a whole text must arrive.
func TestABodyArrivesInTimeOrIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := newRoom().entrance(bodies{}, smallBody)
		connections := newPipes()
		server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: sent.inTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			// Longer than the time limit of the text, which must end with the text.
			time.Sleep(2 * sent.patience)
			if err == nil {
				err = r.Context().Err()
			}
			_, _ = fmt.Fprintln(w, len(text), err)
		}))}
		go func() { _ = server.Serve(connections) }()
		defer func() { must(t, server.Close()) }()
		client := &http.Client{Transport: &http.Transport{DialContext: connections.dial, DisableKeepAlives: true}}
		for _, length := range []int{10, 10 << 10, 2 << 20} {
			answered, err := client.Post("http://virt-api", "application/json", strings.NewReader(strings.Repeat(" ", length)))
			must(t, err)
			text, err := io.ReadAll(answered.Body)
			must(t, err)
			if want := fmt.Sprintln(length, nil); string(text) != want {
				t.Errorf("of %d bytes arrive %q", length, text)
			}
			must(t, answered.Body.Close())
		}
		for _, length := range []int{100, 10 << 10} {
			began := time.Now()
			slow, err := connections.dial(t.Context(), "", "")
			must(t, err)
			_, err = fmt.Fprintf(slow, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n{", length)
			must(t, err)
			begin := make([]byte, 12)
			if _, err := io.ReadFull(slow, begin); err != nil || string(begin) != "HTTP/1.1 400" {
				t.Errorf("who sends one of %d bytes is answered %q, %v", length, begin, err)
			}
			if took := time.Since(began); took > 2*sent.patience {
				t.Errorf("who sends one of %d bytes has room for %v", length, took)
			}
			must(t, slow.Close())
		}
	})
}
