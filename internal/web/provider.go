package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/web/openid"
)

const (
	beginPath = "/signin/begin"
	// EndPath is where an identity provider sends people back.
	EndPath = "/signin/end"
	// wayCookie has a person's way to the provider and back. Another site leads here from there, so it is not Strict.
	wayCookie = "__Host-drydock-web-signin"
	wayLife   = 10 * time.Minute
	maxCode   = 4 << 10
)

// IdentityProvider is an OpenID Connect provider whose ID tokens the API server accepts.
type IdentityProvider interface {
	Begin(context.Context) (address string, begun openid.Begun, err error)
	Finish(ctx context.Context, begun openid.Begun, code string) (openid.Tokens, error)
	Renew(ctx context.Context, refresh string) (openid.Tokens, error)
}

// way is sealed in its cookie.
type way struct {
	Begun openid.Begun `json:"b"`
	Until time.Time    `json:"e"`
}

// leave sends a person to the provider.
func (i *signIn) leave(w http.ResponseWriter, r *http.Request) error {
	if !i.attempts.allow(callerOf(r)) {
		return tooManyAttempts()
	}
	address, begun, err := i.provider.Begin(r.Context())
	if err != nil {
		return unavailable("signing in: %s: try again later", plain(err.Error()))
	}
	text, err := i.ways.close(way{begun, i.now().Add(wayLife)})
	if err != nil {
		return err
	}
	http.SetCookie(w, i.wayCookie(text, int(wayLife/time.Second)))
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

func (i *signIn) wayCookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: wayCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// comeBack begins the session of a person who comes from the provider.
func (i *signIn) comeBack(w http.ResponseWriter, r *http.Request) error {
	values, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	begun, found := i.wayOf(r, values.Get("state"))
	if !found {
		return forbidden("signing in: this browser has not begun to sign in, or too long ago")
	}
	http.SetCookie(w, i.wayCookie("", -1))
	if values.Get("error") != "" {
		return forbidden("signing in: the identity provider says %q", shortened(values.Get("error")))
	}
	code := values.Get("code")
	if code == "" || len(code) > maxCode {
		return malformed("signing in: the identity provider sent no code")
	}
	if !i.attempts.allow(callerOf(r)) {
		return tooManyAttempts()
	}
	tokens, err := i.provider.Finish(r.Context(), begun, code)
	if err != nil {
		return providerRefusal(err)
	}
	user, err := i.whose(r.Context(), tokens.ID)
	if err != nil {
		return err
	}
	id, _ := newSecret()
	one := i.sealedOf(id, user.Username, i.now().Add(sessionLife), tokens)
	if err := i.give(w, &one); err != nil {
		return err
	}
	w.Header().Set("Location", "/")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

func (i *signIn) wayOf(r *http.Request, state string) (openid.Begun, bool) {
	for _, value := range cookies(r, wayCookie) {
		var one way
		if i.ways.open(value, &one) && one.Until.After(i.now()) && subtle.ConstantTimeCompare([]byte(state), []byte(one.Begun.State)) == 1 {
			return one.Begun, true
		}
	}
	return openid.Begun{}, false
}

// sealedOf returns a session with a provider's tokens. One that can be renewed lasts longer than its token.
func (i *signIn) sealedOf(id, username string, limit time.Time, tokens openid.Tokens) sealed {
	one := sealed{
		ID: id, User: standIn(username), Party: standIn(partyOf(username)), Name: shortened(username),
		Limit: limit, Until: limit, Token: tokens.ID, Refresh: tokens.Refresh, Renew: tokens.Expiry,
	}
	if one.Refresh == "" {
		one.withoutRefresh()
	}
	return one
}

func (s *sealed) withoutRefresh() {
	if s.Renew.Before(s.Until) {
		s.Until = s.Renew
	}
	s.Refresh, s.Renew = "", time.Time{}
}

// give sets the cookie of a session. If it is too long, the session ends with its token.
func (i *signIn) give(w http.ResponseWriter, one *sealed) error {
	cookie, err := i.seal.close(*one)
	if errors.Is(err, errTooLong) && one.Refresh != "" {
		one.withoutRefresh()
		cookie, err = i.seal.close(*one)
	}
	if errors.Is(err, errTooLong) {
		return tokenTooLong()
	}
	if err != nil {
		return err
	}
	http.SetCookie(w, i.cookie(cookie, 0))
	return nil
}

// renew gives a session a new token of the same person. It lasts no longer for that.
func (i *signIn) renew(w http.ResponseWriter, r *http.Request) error {
	old, found := i.sealedOfRequest(r, r.Header.Get(sessionHeader))
	switch {
	case !found:
		return notSignedIn()
	case old.Refresh == "" || i.provider == nil:
		return malformed("this session can't be renewed: sign in again")
	}
	// It is not counted among attempts to sign in: strangers must not end sessions.
	done, err := admit(w, r, i.sessionOf(old), changes)
	if err != nil {
		return err
	}
	defer done()
	tokens, err := i.provider.Renew(r.Context(), old.Refresh)
	if errors.Is(err, openid.ErrRefused) {
		return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "your session can't be renewed: sign in again")
	}
	if err != nil {
		return providerRefusal(err)
	}
	user, err := i.whose(r.Context(), tokens.ID)
	if err != nil {
		return err
	}
	if standIn(user.Username) != old.User {
		return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the identity provider has renewed the session of another person: sign in again")
	}
	one := i.sealedOf(old.ID, user.Username, old.Limit, tokens)
	if err := i.give(w, &one); err != nil {
		return err
	}
	return answer.JSON(w, http.StatusOK, i.about(one))
}

func providerRefusal(err error) error {
	if errors.Is(err, openid.ErrRefused) {
		return forbidden("signing in: %s", plain(err.Error()))
	}
	return unavailable("signing in: %s: try again later", plain(err.Error()))
}

func tooManyAttempts() error {
	return refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many people sign in at this moment: try again in a few seconds")
}

func notSignedIn() error {
	return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "you are not signed in, or no longer: sign in again")
}

// show answers a person who is between two pages: a browser shows the answer itself.
func (i *signIn) show(w http.ResponseWriter, err error) {
	if err == nil {
		return
	}
	status := answer.Status(err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(int(status.Code))
	_, _ = io.WriteString(w, fmt.Sprintf("%s\n\nTry again: %s\n", status.Message, i.server.options.Origin)) // a browser that is gone needs none
}
