package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// minSessionKey is how many bytes a session key needs.
	minSessionKey = 32
	// maxCookie keeps a cookie below the size that every browser stores.
	maxCookie = 3900
)

// sealed is a session as its cookie has it. Only a server with the same key and origin can read or make one.
type sealed struct {
	ID string `json:"i"`
	// User stands for the user, whose share of the server all his sessions have together, Party for those who share it
	// with him when it is full.
	User  string    `json:"u"`
	Party string    `json:"p"`
	Name  string    `json:"n"`
	Until time.Time `json:"e"`
	Token string    `json:"t"`
	// Refresh is an identity provider's, for the next Token when Renew has come. Limit is the end of all renewed ones.
	Refresh string    `json:"r,omitempty"`
	Renew   time.Time `json:"w,omitzero"`
	Limit   time.Time `json:"l,omitzero"`
}

// seal encrypts sessions.
type seal struct{ cipher cipher.AEAD }

// ErrShortKey means that a session key is too short to be secret.
var ErrShortKey = fmt.Errorf("the key of sessions has fewer than %d bytes: make a random one", minSessionKey)

// Uses of seals. A text that one has closed, another does not open.
const (
	forSession = "session 1"
	forWay     = "way to a provider 1"
)

func newSeal(key []byte, use, origin string) (*seal, error) {
	if len(key) < minSessionKey {
		return nil, ErrShortKey
	}
	derived, err := hkdf.Key(sha256.New, key, nil, "drydock web console "+use+" "+origin, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("preparing the key of sessions: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("preparing the key of sessions: %w", err)
	}
	return &seal{aead}, nil
}

var errTooLong = errors.New("the session does not fit into a cookie")

func (s *seal) close(one any) (string, error) {
	text, err := json.Marshal(one)
	if err != nil {
		return "", fmt.Errorf("writing a session: %w", err)
	}
	cookie := base64.RawURLEncoding.EncodeToString(s.cipher.Seal(nil, nil, text, nil))
	if len(cookie) > maxCookie {
		return "", errTooLong
	}
	return cookie, nil
}

func (s *seal) open(cookie string, into any) bool {
	if len(cookie) > maxCookie {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return false
	}
	text, err = s.cipher.Open(nil, nil, text, nil)
	return err == nil && json.Unmarshal(text, into) == nil
}
