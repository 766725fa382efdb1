package openid

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The conversation with a provider that answers is tested where its tokens are used, in package web.

// answering returns a provider whose server does as play says.
func answering(t *testing.T, play func(w http.ResponseWriter, r *http.Request, self string)) *Provider {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { play(w, r, server.URL) }))
	t.Cleanup(server.Close)
	return New(Config{Issuer: server.URL, ClientID: "drydock", ClientSecret: "s3cret", Redirect: "https://example.com/end", Transport: server.Client().Transport})
}

func facts(w io.Writer, issuer, self string) {
	_, _ = fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"jwks_uri":%q}`, issuer, self+"/authorize", self+"/token", self+"/keys")
}

func TestAProviderIsAskedWhenItIsNeededAndAgainAfterAPause(t *testing.T) {
	var asked atomic.Int32
	p := answering(t, func(w http.ResponseWriter, _ *http.Request, self string) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		facts(w, self, self)
	})
	for range 3 {
		if _, _, err := p.Begin(t.Context()); err == nil || !strings.Contains(err.Error(), p.config.Issuer) {
			t.Errorf("while it is away: %v; want an error that names it", err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("it was asked %d times at once; want once", asked.Load())
	}
	p.failed = p.failed.Add(-pause)
	for range 3 {
		if _, _, err := p.Begin(t.Context()); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("it was asked %d times; want once more", asked.Load())
	}
}

func TestEachWayHasSecretsOfItsOwn(t *testing.T) {
	p := answering(t, func(w http.ResponseWriter, _ *http.Request, self string) { facts(w, self, self) })
	seen := map[string]bool{}
	for range 2 {
		address, b, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		query := there.Query()
		if query.Get("state") != b.State || query.Get("nonce") != b.Nonce || query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == b.Verifier ||
			query.Get("redirect_uri") != "https://example.com/end" || query.Get("response_type") != "code" || query.Get("scope") != "openid" || strings.Contains(address, "s3cret") {
			t.Errorf("a person is sent to %s", address)
		}
		for _, secret := range []string{b.State, b.Nonce, b.Verifier} {
			if len(secret) < 40 || seen[secret] {
				t.Errorf("the secret %q is short, or used twice", secret)
			}
			seen[secret] = true
		}
	}
}

func TestAProviderIsAsItsAddressSays(t *testing.T) {
	for what, play := range map[string]func(w http.ResponseWriter, r *http.Request, self string){
		"another's facts": func(w http.ResponseWriter, _ *http.Request, self string) { facts(w, "https://evil.example", self) },
		"a redirection": func(w http.ResponseWriter, r *http.Request, self string) {
			if r.URL.Path == "/elsewhere" {
				facts(w, self, self)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
	} {
		if _, _, err := answering(t, play).Begin(t.Context()); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestAProviderHasNoAddressWithoutTLS(t *testing.T) {
	for _, key := range []string{"authorization_endpoint", "token_endpoint", "jwks_uri"} {
		for _, address := range []string{"http://127.0.0.1/x", "javascript:alert(1)", ""} {
			p := answering(t, func(w http.ResponseWriter, _ *http.Request, self string) {
				says := map[string]string{"issuer": self, "authorization_endpoint": self, "token_endpoint": self, "jwks_uri": self}
				says[key] = address
				_ = json.NewEncoder(w).Encode(says)
			})
			if _, _, err := p.Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "not of https") {
				t.Errorf("%s %q: %v", key, address, err)
			}
		}
	}
}

func TestARefusalIsToldFromAnAbsence(t *testing.T) {
	for code, refused := range map[int]bool{http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusTooManyRequests: false, http.StatusRequestTimeout: false, http.StatusBadGateway: false} {
		p := answering(t, func(w http.ResponseWriter, r *http.Request, self string) {
			if r.URL.Path != "/token" {
				facts(w, self, self)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"error":"invalid_grant`+strings.Repeat("x", 1000)+`","error_description":"the code SECRET"}`)
		})
		_, err := p.Finish(t.Context(), Begun{}, "code")
		if _, other := p.Renew(t.Context(), "refresh"); errors.Is(err, ErrRefused) != refused || errors.Is(other, ErrRefused) != refused {
			t.Errorf("%d: %v, %v; want a refusal: %v", code, err, other, refused)
		}
		if refused && (strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 300) {
			t.Errorf("%d: the error has words of the provider: %v", code, err)
		}
	}
}

func TestAnErrorDoesNotRepeatAWholeAnswer(t *testing.T) {
	long := strings.Repeat("x", 1000) + " SECRET"
	for _, failing := range []string{"/.well-known/openid-configuration", "/token", "/keys"} {
		p := answering(t, func(w http.ResponseWriter, r *http.Request, self string) {
			switch r.URL.Path {
			case failing:
				w.WriteHeader(http.StatusBadGateway)
				_, _ = io.WriteString(w, long)
			case "/token":
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"access_token":"a","id_token":%q}`, unsigned(self))
			default:
				facts(w, self, self)
			}
		})
		_, err := p.Finish(t.Context(), Begun{}, "code")
		if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", failing, err)
			continue
		}
		// The answer to a secret may begin with it.
		if failing == "/token" && strings.Contains(err.Error(), "xxx") {
			t.Errorf("the answer of the token's address is repeated: %v", err)
		}
	}
}

// unsigned is an ID token whose signature nobody made.
func unsigned(issuer string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return part(`{"alg":"RS256","kid":"1"}`) + "." + part(fmt.Sprintf(`{"iss":%q,"aud":"drydock","exp":%d}`, issuer, time.Now().Add(time.Hour).Unix())) + "." + part("x")
}

func TestWhoGoesAwayDoesNotKeepOthersFromTheProvider(t *testing.T) {
	came, wait := make(chan struct{}, 2), make(chan struct{})
	p := answering(t, func(w http.ResponseWriter, r *http.Request, self string) {
		came <- struct{}{}
		select {
		case <-wait:
		case <-r.Context().Done():
		}
		facts(w, self, self)
	})
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := p.Begin(ctx)
		gone <- err
	}()
	<-came
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who goes away: %v", err)
	}
	close(wait)
	if _, _, err := p.Begin(t.Context()); err != nil {
		t.Errorf("the next person: %v", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 2*maxAnswer))
	}))
	defer server.Close()
	response, err := New(Config{Transport: http.DefaultTransport}).client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n != maxAnswer {
		t.Errorf("read %d, %v; want %d", n, err, maxAnswer)
	}
}
