// Package openid signs people in at an OpenID Connect provider, by the authorization code flow with PKCE. It owns the
// conversation with the provider and the checks of its ID tokens. It must not keep anything of a person, or decide who
// may do what: package web keeps sessions, and the API server decides.
package openid

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// patience bounds one request to the provider.
	patience  = 10 * time.Second
	maxAnswer = 1 << 20
	// maxCode and maxSaid are bytes of it that an error repeats.
	maxCode, maxSaid = 64, 256
	// pause is how long a provider that could not be reached is left alone.
	pause = 5 * time.Second
)

// Config is of one provider.
type Config struct {
	Issuer, ClientID, ClientSecret string
	// Scopes are asked for beside openid.
	Scopes []string
	// Redirect is the address to which the provider sends people back.
	Redirect string
	// Transport leads to the provider.
	Transport http.RoundTripper
}

// Provider is a provider that is asked when it is first needed, since it may be away when the program starts.
type Provider struct {
	config Config
	client *http.Client

	mu       sync.Mutex
	oauth    *oauth2.Config
	verifier *oidc.IDTokenVerifier
	// failed and problem are of the last time that the provider could not be reached.
	failed  time.Time
	problem error
}

// Begun is a person's way to the provider and back. Only the browser that began it may end it.
type Begun struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Tokens are of a person who has signed in.
type Tokens struct {
	// ID is the token for the API server. Refresh, if there is one, is for the next ID.
	ID, Refresh string
	// Expiry is of ID.
	Expiry time.Time
}

// ErrRefused means that the provider or its answer says no, so that asking again is of no use.
var ErrRefused = errors.New("the identity provider refused")

// New returns a provider. Nothing is asked yet.
func New(c Config) *Provider {
	return &Provider{config: c, client: &http.Client{
		Timeout: patience, Transport: bounded{c.Transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// bounded cuts answers that are too long.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

// discover returns the provider's addresses and keys, and asks it first.
func (p *Provider) discover(ctx context.Context) (*oauth2.Config, *oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oauth != nil {
		return p.oauth, p.verifier, nil
	}
	if time.Since(p.failed) < pause {
		return nil, nil, p.problem
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.config.Issuer)
	if err == nil {
		err = overTLS(found)
	}
	if err != nil {
		err = fmt.Errorf("asking the identity provider %s about itself: %w", p.config.Issuer, brief{err})
		// A person who has gone says nothing of the provider to others.
		if ctx.Err() == nil {
			p.failed, p.problem = time.Now(), err
		}
		return nil, nil, err
	}
	p.oauth = &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: p.config.Redirect, Scopes: append([]string{oidc.ScopeOpenID}, p.config.Scopes...),
	}
	p.verifier = found.Verifier(&oidc.Config{ClientID: p.config.ClientID})
	return p.oauth, p.verifier, nil
}

// overTLS refuses a provider that has secrets sent to it, or keys fetched, without TLS, as one does that knows nothing of
// the proxy in front of it.
func overTLS(found *oidc.Provider) error {
	var says struct {
		Keys string `json:"jwks_uri"`
	}
	if err := found.Claims(&says); err != nil {
		return err
	}
	for _, address := range []string{found.Endpoint().AuthURL, found.Endpoint().TokenURL, says.Keys} {
		if !strings.HasPrefix(address, "https://") {
			return fmt.Errorf("it says that it has the address %q, which is not of https: correct its public address", shortened(address, maxCode))
		}
	}
	return nil
}

func secret() string {
	var bytes [32]byte
	_, _ = rand.Read(bytes[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(bytes[:])
}

// Begin returns the address at the provider to which a person goes.
func (p *Provider) Begin(ctx context.Context) (string, Begun, error) {
	oauth, _, err := p.discover(ctx)
	if err != nil {
		return "", Begun{}, err
	}
	b := Begun{State: secret(), Nonce: secret(), Verifier: oauth2.GenerateVerifier()}
	return oauth.AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)), b, nil
}

// Finish exchanges the code with which a person came back.
func (p *Provider) Finish(ctx context.Context, b Begun, code string) (Tokens, error) {
	oauth, verifier, err := p.discover(ctx)
	if err != nil {
		return Tokens{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := oauth.Exchange(ctx, code, oauth2.VerifierOption(b.Verifier))
	if err != nil {
		return Tokens{}, failure("exchanging the code of the identity provider", err)
	}
	given, nonce, err := read(ctx, verifier, token)
	if err == nil && subtle.ConstantTimeCompare([]byte(nonce), []byte(b.Nonce)) != 1 {
		err = fmt.Errorf("%w: its ID token is of another signing in", ErrRefused)
	}
	if err != nil {
		return Tokens{}, err
	}
	return given, nil
}

// Renew returns new tokens.
func (p *Provider) Renew(ctx context.Context, refresh string) (Tokens, error) {
	oauth, verifier, err := p.discover(ctx)
	if err != nil {
		return Tokens{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := oauth.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, failure("renewing the token of the identity provider", err)
	}
	given, _, err := read(ctx, verifier, token)
	return given, err
}

// read checks the ID token's signature, issuer, audience and time.
func read(ctx context.Context, verifier *oidc.IDTokenVerifier, token *oauth2.Token) (Tokens, string, error) {
	raw, has := token.Extra("id_token").(string)
	if !has {
		return Tokens{}, "", fmt.Errorf("%w: it gave no ID token", ErrRefused)
	}
	checked, err := verifier.Verify(ctx, raw)
	if err != nil {
		return Tokens{}, "", fmt.Errorf("%w: its ID token is not valid: %w", ErrRefused, brief{err})
	}
	return Tokens{ID: raw, Refresh: token.RefreshToken, Expiry: checked.Expiry}, checked.Nonce, nil
}

// failure tells a refusal from a provider that can't be reached. A refusal's text may have parts of what was sent.
func failure(doing string, err error) error {
	var said *oauth2.RetrieveError
	if !errors.As(err, &said) || said.Response == nil {
		return fmt.Errorf("%s: %w", doing, brief{err})
	}
	code := said.Response.StatusCode
	if code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout {
		return fmt.Errorf("%s: it answered with %d %q", doing, code, shortened(said.ErrorCode, maxCode))
	}
	return fmt.Errorf("%s: %w with %d %q", doing, ErrRefused, code, shortened(said.ErrorCode, maxCode))
}

func shortened(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}

// brief is an error that may have an answer of the provider as its text.
type brief struct{ error }

func (b brief) Error() string { return shortened(b.error.Error(), maxSaid) }
func (b brief) Unwrap() error { return b.error }
