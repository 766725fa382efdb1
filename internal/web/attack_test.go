package web

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// connect opens a connection to a console where people sign in.
func (b *browser) connect() net.Conn {
	b.t.Helper()
	transport := b.client.Transport.(*http.Transport)
	plain, err := transport.DialContext(b.t.Context(), "tcp", b.host)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = plain.Close() })
	config := transport.TLSClientConfig.Clone()
	config.ServerName = b.host
	connection := tls.Client(plain, config)
	_ = connection.SetDeadline(time.Now().Add(deadline))
	return connection
}

// lastRequest is refused, so that the connection is closed behind it.
const lastRequest = "GET / HTTP/1.1\r\nHost: last\r\n\r\n"

// sends writes a text as it is, and the last request, and returns the codes of all answers until the connection is closed.
func (b *browser) sends(text string) (codes []int) {
	b.t.Helper()
	connection := b.connect()
	if _, err := io.WriteString(connection, text+lastRequest); err != nil {
		b.t.Fatal(err)
	}
	for reader := bufio.NewReader(connection); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return codes
		}
		codes = append(codes, response.StatusCode)
		_, _ = io.Copy(io.Discard, response.Body)
	}
}

func TestRequestsThatHideInOthers(t *testing.T) {
	var asked atomic.Int32
	b := openCluster(t, knowing(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		write(w, "application/json", "{}")
	}))
	b.mustSignIn(goodToken)
	session := "Host: example.com\r\nOrigin: https://example.com\r\nCookie: " + b.cookie + "\r\nX-Drydock-Session: " + b.secret + "\r\n"
	second := "GET " + vms + " HTTP/1.1\r\n" + session + "\r\n"
	ok, bad, no, last := http.StatusOK, http.StatusBadRequest, http.StatusForbidden, http.StatusMisdirectedRequest
	for name, test := range map[string]struct {
		text  string
		codes []int
		asked int32
	}{
		"two requests, one after the other":     {second + second, []int{ok, ok, last}, 2},
		"a request behind a refused one":        {"GET /api/v1/secrets HTTP/1.1\r\n" + session + "\r\n" + second, []int{no}, 0},
		"a request in the body of another":      {"GET " + vms + " HTTP/1.1\r\n" + session + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(second)) + second, []int{ok, last}, 1},
		"two lengths":                           {"POST " + vms + " HTTP/1.1\r\n" + session + "Content-Length: 0\r\nContent-Length: 9\r\n\r\n" + second, []int{bad}, 0},
		"a length of two numbers":               {"POST " + vms + " HTTP/1.1\r\n" + session + "Content-Length: 0, 9\r\n\r\n" + second, []int{bad}, 0},
		"an encoding that nobody knows":         {"POST " + vms + " HTTP/1.1\r\n" + session + "Transfer-Encoding: xchunked\r\n\r\n" + second, []int{http.StatusNotImplemented}, 0},
		"an encoding twice":                     {"POST " + vms + " HTTP/1.1\r\n" + session + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + second, []int{http.StatusNotImplemented}, 0},
		"a space before the colon":              {"GET " + vms + " HTTP/1.1\r\n" + session + "Content-Length : 5\r\n\r\n" + second, []int{bad}, 0},
		"a line that goes on":                   {"GET " + vms + " HTTP/1.1\r\nX: y\r\n Host: example.com\r\n\r\n", []int{bad}, 0},
		"two hosts":                             {"GET " + vms + " HTTP/1.1\r\nHost: evil.example\r\n" + session + "\r\n", []int{bad}, 0},
		"a host in the target":                  {"GET https://evil.example" + vms + " HTTP/1.1\r\n" + session + "\r\n" + second, []int{http.StatusMisdirectedRequest}, 0},
		"our host in the target":                {"GET https://example.com" + vms + " HTTP/1.1\r\n" + session + "\r\n", []int{bad}, 0},
		"two slashes":                           {"GET /" + vms + " HTTP/1.1\r\n" + session + "\r\n", []int{bad}, 0},
		"a tunnel":                              {"CONNECT example.com:443 HTTP/1.1\r\n" + session + "\r\n", []int{http.StatusMisdirectedRequest}, 0},
		"a trace":                               {"TRACE " + vms + " HTTP/1.1\r\n" + session + "\r\n", []int{no}, 0},
		"a method of its own":                   {"get " + vms + " HTTP/1.1\r\n" + session + "\r\n", []int{no}, 0},
		"HTTP/2 by prior knowledge":             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{http.StatusMisdirectedRequest}, 0},
		"HTTP/2 by an upgrade":                  {"GET " + vms + " HTTP/1.1\r\n" + session + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + second, []int{bad}, 0},
		"a WebSocket that is none, with a body": {"GET " + vms + " HTTP/1.1\r\n" + session + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\nContent-Length: 4\r\n\r\nGET " + second, []int{bad}, 0},
		"HTTP/1.0 without a host":               {"GET " + vms + " HTTP/1.0\r\n\r\n", []int{http.StatusMisdirectedRequest}, 0},
		"a thousand lines":                      {"GET " + vms + " HTTP/1.1\r\n" + session + strings.Repeat("a:\r\n", 1000) + "\r\n" + second, []int{http.StatusRequestHeaderFieldsTooLarge}, 0},
		"a thousand names":                      {"GET " + vms + " HTTP/1.1\r\n" + session + manyNames(1000) + "\r\n" + second, []int{http.StatusRequestHeaderFieldsTooLarge}, 0},
	} {
		asked.Store(0)
		if codes := b.sends(test.text); fmt.Sprint(codes) != fmt.Sprint(test.codes) || asked.Load() != test.asked {
			t.Errorf("%s: answered %v, and the API server was asked %d times; want %v and %d", name, codes, asked.Load(), test.codes, test.asked)
		}
	}
}

func manyNames(count int) string {
	var lines strings.Builder
	for n := range count {
		fmt.Fprintf(&lines, "a%d:\r\n", n)
	}
	return lines.String()
}

// Strangers open connections, send half of a request, and wait. The kubelet asks by a new connection, too, and would end the
// pod with everybody's consoles.
func TestStrangersDontShutPeopleOut(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	for n := range 4 * maxStrangers {
		connection := b.connect()
		begun := "POST /session HTTP/1.1\r\nHost: example.com\r\nOrigin: https://example.com\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
		if n%2 == 0 {
			begun += "\r\n{" // or the header does not end
		}
		_, _ = io.WriteString(connection, begun) // it may have made room for a later one
	}
	if open := b.server.callers.Open(); open == 0 || open > 2*maxStrangers {
		t.Errorf("%d connections of strangers are open; want some, and %d at most", open, 2*maxStrangers)
	}
	b.client.CloseIdleConnections()
	for _, target := range []string{vms, healthPath} {
		if code := b.do("GET", target, "").StatusCode; code != http.StatusOK {
			t.Errorf("%s: %d", target, code)
		}
	}
	if code := b.signIn(goodToken).StatusCode; code != http.StatusOK {
		t.Errorf("signing in meanwhile: %d", code)
	}
}

// A place that is needed for another is free at once, also if its owner sends his request slowly or does not read.
func TestASlowRequestEndsWhenItsPlaceIsNeeded(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	connection := b.connect()
	if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: example.com\r\nOrigin: https://example.com\r\nContent-Type: application/json\r\nCookie: %s\r\n%s: %s\r\nContent-Length: 9\r\n\r\n{",
		vms, b.cookie, sessionHeader, b.secret); err != nil {
		t.Fatal(err)
	}
	crowd := b.server.signIn.crowd
	inside := func() *session {
		crowd.mu.Lock()
		defer crowd.mu.Unlock()
		if len(crowd.open) < 2 {
			return nil
		}
		return crowd.open[0].one
	}
	began := time.Now()
	var one *session
	for tick := time.Tick(time.Millisecond); one == nil; one = inside() {
		if <-tick; time.Since(began) > deadline {
			t.Fatal("the request has not come")
		}
	}
	one.end()
	if _, err := io.Copy(io.Discard, connection); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection: %v; want it closed", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it ended after %v", took)
	}
}

// Two people use one browser: what the first one's tabs still show is not done with the second one's rights.
func TestAPageDoesNotGoOnWithAnotherPersonsRights(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	first := b.secret
	b.mustSignIn(goodToken + ".other")
	for _, request := range [][2]string{{"GET", vms}, {"POST", vms}, {"DELETE", "/session"}, {"GET", "/session"}} {
		if code := b.do(request[0], request[1], "{}", "Content-Type: application/json", sessionHeader+": "+first).StatusCode; code != http.StatusUnauthorized {
			t.Errorf("%s of the first one's page: %d; want 401", request, code)
		}
	}
	if code := b.do("GET", vms, "").StatusCode; code != http.StatusOK {
		t.Errorf("the second one's page: %d", code)
	}
}

func tokenUntil(expiry string) string {
	return "good." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":`+expiry+`}`)) + ".signature"
}

func TestASessionEndsWithItsToken(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	for token, want := range map[string]time.Duration{
		tokenUntil("1000000060"):        time.Minute,
		tokenUntil("1000000060.9"):      time.Minute,
		tokenUntil("1e9"):               0,
		tokenUntil("999999999"):         0,
		tokenUntil("2000000000"):        sessionLife,
		tokenUntil("1e300"):             sessionLife,
		tokenUntil("-1"):                sessionLife,
		tokenUntil(`"soon"`):            sessionLife,
		goodToken + "!.x":               sessionLife,
		goodToken:                       sessionLife,
		"a.b.c.d":                       sessionLife,
		tokenUntil("1000000060") + ".x": sessionLife,
	} {
		i := &signIn{now: func() time.Time { return now }}
		one, err := i.newSession("alice", token)
		if (err == nil) != (want > 0) || err == nil && one.Until.Sub(now) != want {
			t.Errorf("%s: until %v, %v; want %v", token, one.Until.Sub(now), err, want)
		}
	}
}
