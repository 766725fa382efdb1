package web

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guard refuses requests that no page of this origin made. A page of another origin may send any request here, also by a
// name that it has turned to this address.
func guard(r *http.Request, origin string) error {
	if _, host, _ := strings.Cut(origin, "://"); r.Host != host {
		return refusal(http.StatusMisdirectedRequest, metav1.StatusReasonForbidden,
			"this is not the address of the web console: use the one that it printed when it was started")
	}
	if len(r.Header["Service-Worker"]) > 0 {
		return forbidden("the web console has no service worker")
	}
	changes := r.Method != http.MethodGet
	switch sent := r.Header["Origin"]; {
	case len(sent) == 0 && (changes || len(r.Header["Upgrade"]) > 0):
		return forbidden("the request does not say which page made it: requests that change something, and WebSockets, need an Origin")
	case len(sent) > 1, len(sent) == 1 && sent[0] != origin:
		return forbidden("the request was made by a page of another origin")
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && !opens(r) {
			return forbidden("the request was made by a page of another site")
		}
	}
	return nil
}

// opens says that a request opens the page, which anybody may: it has no data, and a session is needed for more. An identity
// provider leads people back, and whoever has not begun here gets nothing.
func opens(r *http.Request) bool {
	mode, destination := r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	return r.Method == http.MethodGet && (r.URL.Path == "/" || r.URL.Path == EndPath) && (mode == "" || mode == "navigate") && (destination == "" || destination == "document")
}

// wantsUpgrade reports whether a request asks for a WebSocket. Any other upgrade is an error.
func wantsUpgrade(h http.Header) (bool, error) {
	if len(h["Upgrade"]) == 0 {
		return false, nil
	}
	if len(h["Upgrade"]) > 1 || !strings.EqualFold(h.Get("Upgrade"), "websocket") || !strings.Contains(strings.ToLower(h.Get("Connection")), "upgrade") {
		return false, malformed("the only upgrade is that to a WebSocket")
	}
	return true, nil
}

// sessionProtocol begins the subprotocol of a WebSocket that has the session's secret.
const sessionProtocol = "drydock.session."

// protocols separates the session's secret from the other subprotocol that a WebSocket offers.
func protocols(h http.Header) (protocol, secret string, err error) {
	for text := range strings.SplitSeq(strings.Join(h["Sec-Websocket-Protocol"], ","), ",") {
		text = strings.TrimSpace(text)
		if rest, found := strings.CutPrefix(text, sessionProtocol); found && secret == "" {
			secret = rest
			continue
		}
		if protocol != "" || text == "" {
			return "", "", malformed("a WebSocket offers two subprotocols: that of its stream, and the session's")
		}
		protocol = text
	}
	return protocol, secret, nil
}
