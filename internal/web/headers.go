package web

import (
	"mime"
	"net/http"
	"strings"
)

// protect sets the headers of every answer. Only the page itself may do more, by its own policy.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// policy is of the page. A browser may not count WebSockets to 'self'.
func policy(origin string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:", "font-src 'self'",
		"connect-src 'self' ws" + strings.TrimPrefix(origin, "http"), "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
}

// sentHeader returns the whole header of a call. Nothing else that a browser sent passes: no credentials, and nothing that
// names another user or address.
func sentHeader(c call, came http.Header, hasBody bool) (http.Header, error) {
	sent := http.Header{"Accept": {string(jsonAnswer)}}
	if c.answer == pngAnswer {
		// Its errors are JSON.
		sent.Set("Accept", string(pngAnswer)+", "+string(jsonAnswer))
	}
	if hasBody {
		kind := came.Get("Content-Type")
		if kind != string(jsonAnswer) {
			return nil, refusal(http.StatusUnsupportedMediaType, "UnsupportedMediaType",
				"%s does not pass a body of the type %q: write %s", c.method, kind, jsonAnswer)
		}
		sent.Set("Content-Type", kind)
	}
	if !c.answer.isStream() {
		return sent, nil
	}
	sent.Del("Accept")
	sent.Set("Connection", "Upgrade")
	sent.Set("Upgrade", "websocket")
	for _, name := range []string{"Sec-Websocket-Key", "Sec-Websocket-Version"} {
		if len(came[name]) != 1 {
			return nil, malformed("the WebSocket has no %s", name)
		}
		sent[name] = came[name]
	}
	if c.answer == streamAnswer {
		sent.Set("Sec-Websocket-Protocol", string(streamAnswer))
	}
	return sent, nil
}

// maxWarnings bounds the warnings of one answer.
const maxWarnings = 64

// copyAnswerHeader copies those parts of an answer's header that pass: no cookies, redirections or rights for other origins.
func copyAnswerHeader(to, from http.Header) {
	for _, name := range []string{"Warning", "Retry-After"} {
		for i, value := range from[name] {
			if i < maxWarnings {
				to.Add(name, value)
			}
		}
	}
}

func isType(h http.Header, kind answerKind) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == string(kind)
}
