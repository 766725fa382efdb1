package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/gorilla/websocket"

	"drydock.dev/drydock/internal/answer"
)

// lifeAnswer is a WebSocket of a session that has no messages: as long as it is open, nobody else has the port. When it
// was closed, a page asks for a proof before it goes on, since another user may have taken the port.
const lifeAnswer answerKind = "life.drydock.dev"

const (
	proofPath = "/proof"
	maxNonce  = 64
)

// proofKey is told to a page once, in the answer that begins its session, and is in no request.
type proofKey [sha256.Size]byte

func newProofKey() (key proofKey) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

func (k proofKey) String() string { return hex.EncodeToString(k[:]) }

// prove answers a question that only this process can answer.
func (s *Server) prove(w http.ResponseWriter, r *http.Request) error {
	nonce := r.URL.Query().Get("nonce")
	if nonce == "" || len(nonce) > maxNonce {
		return malformed("a proof needs a nonce of 1 to %d bytes", maxNonce)
	}
	sum := hmac.New(sha256.New, s.key[:])
	_, _ = sum.Write([]byte(nonce)) // never fails
	return answer.JSON(w, http.StatusOK, map[string]string{"proof": hex.EncodeToString(sum.Sum(nil))})
}

// live holds a WebSocket until the page, the session or the server ends.
func (s *Server) live(w http.ResponseWriter, r *http.Request) error {
	protocol, secret, err := protocols(r.Header)
	if err != nil {
		return err
	}
	one, err := s.find(r, secret)
	if err != nil {
		return err
	}
	if protocol != string(lifeAnswer) {
		return malformed("the WebSocket of a session offers the subprotocol %q: write %q", protocol, lifeAnswer)
	}
	leave, err := admit(w, r, one, streams)
	if err != nil {
		return err
	}
	defer leave()
	upgrader := websocket.Upgrader{
		Subprotocols: []string{string(lifeAnswer)},
		CheckOrigin:  func(*http.Request) bool { return true }, // the guard has
	}
	connection, err := upgrader.Upgrade(w, r, w.Header())
	if err != nil {
		return nil // it was answered
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(one.ctx, func() { _ = connection.Close() })()
	_, _, _ = connection.NextReader() // a page sends nothing, so this waits for the end
	return nil
}
