package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

const ourHost, ourOrigin = "0123.localhost:8123", "http://0123.localhost:8123"

func TestOnlyItsOwnOriginIsServed(t *testing.T) {
	for name, test := range map[string]struct {
		method, target, host string
		headers              []string
		passes               bool
	}{
		"the page, typed in":              {"GET", "/", ourHost, []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, true},
		"the page, from a file":           {"GET", "/", ourHost, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, true},
		"a script of the page":            {"GET", "/assets/a.js", ourHost, []string{"Sec-Fetch-Site: same-origin"}, true},
		"a request of the page":           {"GET", vms, ourHost, nil, true},
		"a change by the page":            {"POST", vms, ourHost, []string{"Origin: " + ourOrigin, "Sec-Fetch-Site: same-origin"}, true},
		"a WebSocket of the page":         {"GET", vms, ourHost, []string{"Origin: " + ourOrigin, "Upgrade: websocket"}, true},
		"a name turned to this address":   {"GET", "/", "evil.example:8123", nil, false},
		"the address itself":              {"GET", "/", "127.0.0.1:8123", nil, false},
		"localhost":                       {"GET", "/", "localhost:8123", nil, false},
		"another port":                    {"GET", "/", "0123.localhost:8124", nil, false},
		"without the port":                {"GET", "/", "0123.localhost", nil, false},
		"a name below it":                 {"GET", "/", "x." + ourHost, nil, false},
		"another case":                    {"GET", "/", strings.ToUpper(ourHost), nil, false},
		"no host":                         {"GET", "/", "", nil, false},
		"a foreign origin":                {"POST", vms, ourHost, []string{"Origin: http://evil.example"}, false},
		"a foreign origin that reads":     {"GET", vms, ourHost, []string{"Origin: http://evil.example"}, false},
		"an origin of another port":       {"POST", vms, ourHost, []string{"Origin: http://0123.localhost:8124"}, false},
		"an origin of another scheme":     {"POST", vms, ourHost, []string{"Origin: https://0123.localhost:8123"}, false},
		"an origin that is hidden":        {"POST", vms, ourHost, []string{"Origin: null"}, false},
		"two origins":                     {"POST", vms, ourHost, []string{"Origin: " + ourOrigin, "Origin: http://evil.example"}, false},
		"a change without an origin":      {"POST", vms, ourHost, nil, false},
		"a deletion without an origin":    {"DELETE", vms, ourHost, nil, false},
		"a WebSocket without an origin":   {"GET", vms, ourHost, []string{"Upgrade: websocket"}, false},
		"a foreign WebSocket":             {"GET", vms, ourHost, []string{"Upgrade: websocket", "Origin: http://evil.example"}, false},
		"a question before a foreign one": {"OPTIONS", vms, ourHost, []string{"Origin: http://evil.example"}, false},
		"another site's picture":          {"GET", vms, ourHost, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, false},
		"another site's script":           {"GET", "/assets/a.js", ourHost, []string{"Sec-Fetch-Site: cross-site"}, false},
		"the page in another's frame":     {"GET", "/", ourHost, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, false},
		"a name beside it":                {"GET", vms, ourHost, []string{"Sec-Fetch-Site: same-site"}, false},
		"the API, typed in":               {"GET", vms, ourHost, []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"}, false},
		"a service worker":                {"GET", "/assets/a.js", ourHost, []string{"Service-Worker: script", "Sec-Fetch-Site: same-origin"}, false},
	} {
		r := httptest.NewRequest(test.method, test.target, http.NoBody)
		r.Host = test.host
		for _, line := range test.headers {
			key, value, _ := strings.Cut(line, ": ")
			r.Header.Add(key, value)
		}
		if err := guard(r, ourOrigin); (err == nil) != test.passes {
			t.Errorf("%s: %v; want it to pass: %v", name, err, test.passes)
		}
	}
}

// Go's server answers this question itself, if it is let.
func TestAQuestionAboutTheWholeServerIsGuarded(t *testing.T) {
	b := open(t, http.NotFoundHandler())
	target := &url.URL{Scheme: "http", Host: b.host, Opaque: "*"}
	response, err := b.client.Do(&http.Request{Method: http.MethodOptions, URL: target, Host: "evil.example"})
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	checkProtection(t, response)
	if response.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("answered %d; want 421", response.StatusCode)
	}
}

func TestTheSessionsHalfIsSeparatedFromTheSubprotocol(t *testing.T) {
	for offered, want := range map[string][2]string{
		"watch.drydock.dev, drydock.session.abc": {"watch.drydock.dev", "abc"},
		"drydock.session.abc,plain.kubevirt.io":  {"plain.kubevirt.io", "abc"},
		"plain.kubevirt.io":                      {"plain.kubevirt.io", ""},
		"drydock.session.abc":                    {"", "abc"},
	} {
		protocol, secret, err := protocols(http.Header{"Sec-Websocket-Protocol": {offered}})
		if err != nil || protocol != want[0] || secret != want[1] {
			t.Errorf("%q: got %q, %q, %v; want %q", offered, protocol, secret, err, want)
		}
	}
	for _, offered := range []string{"plain.kubevirt.io, drydock.session.abc, base64url.bearer.authorization.k8s.io.eA", "drydock.session.a, drydock.session.b, plain.kubevirt.io", ", plain.kubevirt.io"} {
		if protocol, _, err := protocols(http.Header{"Sec-Websocket-Protocol": {offered}}); err == nil {
			t.Errorf("%q passes as %q", offered, protocol)
		}
	}
}

func TestTheOnlyUpgradeIsToAWebSocket(t *testing.T) {
	for _, h := range []http.Header{
		{"Upgrade": {"h2c"}, "Connection": {"Upgrade"}}, {"Upgrade": {"SPDY/3.1"}, "Connection": {"Upgrade"}},
		{"Upgrade": {"websocket"}}, {"Upgrade": {"websocket", "h2c"}, "Connection": {"Upgrade"}},
	} {
		if is, err := wantsUpgrade(h); err == nil {
			t.Errorf("%v passes: %v", h, is)
		}
	}
	if is, err := wantsUpgrade(http.Header{"Upgrade": {"WebSocket"}, "Connection": {"keep-alive, Upgrade"}}); !is || err != nil {
		t.Errorf("a WebSocket: %v, %v", is, err)
	}
}
