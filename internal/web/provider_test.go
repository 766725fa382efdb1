package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"drydock.dev/drydock/internal/web/openid"
)

// provider is an OpenID Connect provider, before kube-apiserver's own authenticator, which accepts its tokens.
type provider struct {
	t             *testing.T
	server        *httptest.Server
	key           *ecdsa.PrivateKey
	authenticator authenticator.Token

	mu sync.Mutex
	// person is who is at the provider, life is of an ID token, and claims are in place of its own.
	person string
	life   time.Duration
	claims map[string]any
	// signer is in place of key.
	signer *ecdsa.PrivateKey
	// refreshes says that there are refresh tokens, filled to that length. down says that it does not answer.
	refreshes int
	down      bool
	// codes are those that were given out, with the query of each, refresh is the latest refresh token.
	codes   map[string]url.Values
	refresh string
	asked   []string
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, key: newKey(t), person: "alice", life: time.Hour, codes: map[string]url.Values{}}
	p.server = httptest.NewTLSServer(p)
	t.Cleanup(p.server.Close)
	prefix := ""
	known, err := oidc.New(t.Context(), oidc.Options{
		JWTAuthenticator: apiserver.JWTAuthenticator{
			Issuer:        apiserver.Issuer{URL: p.server.URL, Audiences: []string{"drydock"}},
			ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix}},
		},
		Client: p.server.Client(), SupportedSigningAlgs: []string{"ES256"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// It asks the provider about itself first.
	began := time.Now()
	for tick := time.Tick(time.Millisecond); known.HealthCheck() != nil; <-tick {
		if time.Since(began) > deadline {
			t.Fatal(known.HealthCheck())
		}
	}
	p.authenticator, p.asked = known, nil
	return p
}

// open returns a browser before a console that sends people to the provider.
func (p *provider) open() *browser {
	p.t.Helper()
	b := openCluster(p.t, http.HandlerFunc(p.api))
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.server.signIn.provider = openid.New(openid.Config{
		Issuer: p.server.URL, ClientID: "drydock", ClientSecret: "s3cret", Scopes: []string{"email"}, Redirect: clusterOrigin + EndPath, Transport: p.server.Client().Transport,
	})
	return b
}

// api is the API server.
func (p *provider) api(w http.ResponseWriter, r *http.Request) {
	found, known, err := p.authenticator.AuthenticateToken(r.Context(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	w.Header().Set("Content-Type", "application/json")
	switch {
	case err != nil || !known:
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, reviewPath):
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"userInfo": map[string]string{"username": found.User.GetName()}}})
	default:
		_, _ = io.WriteString(w, `{"of":"`+found.User.GetName()+`"}`)
	}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.URL.Path)
	reply := func(value any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	switch {
	case p.down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/.well-known/openid-configuration":
		reply(map[string]any{
			"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/authorize", "token_endpoint": p.server.URL + "/token", "jwks_uri": p.server.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	case r.URL.Path == "/keys":
		reply(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p.key.PublicKey, KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	case r.URL.Path == "/authorize":
		code := rand.Text()
		p.codes[code] = r.URL.Query()
		http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {r.URL.Query().Get("state")}}.Encode(), http.StatusFound)
	case r.URL.Path == "/token":
		claims, allowed := p.grant(r)
		if !allowed {
			w.WriteHeader(http.StatusBadRequest)
			reply(map[string]string{"error": "invalid_grant", "error_description": "secret words of the provider"})
			return
		}
		answer := map[string]any{"access_token": "access", "token_type": "Bearer", "id_token": p.sign(claims)}
		if p.refreshes > 0 {
			p.refresh = rand.Text() + strings.Repeat("r", p.refreshes)
			answer["refresh_token"] = p.refresh
		}
		reply(answer)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// grant checks a code, or a refresh token, each of which is good once.
func (p *provider) grant(r *http.Request) (map[string]any, bool) {
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id != "drydock" || secret != "s3cret" {
		return nil, false
	}
	if r.FormValue("grant_type") == "refresh_token" {
		return map[string]any{}, p.refresh != "" && r.FormValue("refresh_token") == p.refresh
	}
	began, known := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	return map[string]any{"nonce": began.Get("nonce")}, known && began.Get("code_challenge_method") == "S256" &&
		began.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(challenge[:]) && began.Get("redirect_uri") == r.FormValue("redirect_uri")
}

func (p *provider) sign(own map[string]any) string {
	key := p.key
	if p.signer != nil {
		key = p.signer
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	if err != nil {
		p.t.Error(err)
		return ""
	}
	claims := map[string]any{"iss": p.server.URL, "aud": "drydock", "sub": p.person, "exp": time.Now().Add(p.life).Unix(), "iat": time.Now().Unix()}
	maps.Copy(claims, own)
	maps.Copy(claims, p.claims)
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		p.t.Error(err)
	}
	return text
}

// jar keeps an answer's cookies, as a browser does.
func (b *browser) jar(response *http.Response) {
	kept := map[string]string{}
	for part := range strings.SplitSeq(b.cookie, "; ") {
		if name, value, found := strings.Cut(part, "="); found {
			kept[name] = value
		}
	}
	for _, c := range response.Cookies() {
		kept[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(kept, c.Name)
		}
	}
	var parts []string
	for name, value := range kept {
		parts = append(parts, name+"="+value)
	}
	b.cookie = strings.Join(parts, "; ")
}

// leaves begins to sign in, and returns the address at which the provider sends the person back.
func (b *browser) leaves(p *provider) string {
	b.t.Helper()
	response := b.do("GET", beginPath, "")
	if response.StatusCode != http.StatusSeeOther {
		text, _ := io.ReadAll(response.Body)
		b.t.Fatalf("leaving for the provider: %d %s", response.StatusCode, text)
	}
	b.jar(response)
	client := p.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	there, err := client.Get(response.Header.Get("Location"))
	if err != nil {
		b.t.Fatal(err)
	}
	_ = there.Body.Close()
	return strings.TrimPrefix(there.Header.Get("Location"), clusterOrigin)
}

// comesBack follows the provider's redirection, as a browser does.
func (b *browser) comesBack(target string) (code int, said string) {
	b.t.Helper()
	response := b.do("GET", target, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", sessionHeader+": ")
	b.jar(response)
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusSeeOther && response.Header.Get("Location") != "/" {
		b.t.Errorf("a person is sent on to %s", response.Header.Get("Location"))
	}
	return response.StatusCode, string(text)
}

func (b *browser) hasSession() bool { return strings.Contains(b.cookie, signInCookie+"=") }

// opened is a page that asks for its session.
func (b *browser) opened() (told signedIn, code int) {
	b.t.Helper()
	response := b.do("GET", sessionPath, "", sessionHeader+": "+ofThePage)
	if response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(response.Body).Decode(&told); err != nil {
			b.t.Fatal(err)
		}
		b.secret = told.Secret
	}
	return told, response.StatusCode
}

func TestAPersonSignsInAtTheProvider(t *testing.T) {
	p := newProvider(t)
	b := p.open()
	code, said := b.comesBack(b.leaves(p))
	if code != http.StatusSeeOther || strings.Contains(b.cookie, wayCookie) {
		t.Fatalf("coming back: %d %s, with %s", code, said, b.cookie)
	}
	told, code := b.opened()
	if code != http.StatusOK || told.User != "alice" || told.Renew != nil {
		t.Fatalf("the page is told %+v, %d", told, code)
	}
	if text, _ := io.ReadAll(b.do("GET", vms, "").Body); string(text) != `{"of":"alice"}` {
		t.Errorf("the API server answers %s; want it to know alice by her ID token", text)
	}
	if code := b.do("PUT", sessionPath, "{}", asJSONBody).StatusCode; code != http.StatusBadRequest {
		t.Errorf("renewing without a refresh token: %d; want 400", code)
	}
	b.server.signIn.now = func() time.Time { return time.Now().Add(p.life + time.Second) }
	if code := b.do("GET", vms, "").StatusCode; code != http.StatusUnauthorized {
		t.Errorf("after the end of her token: %d; want 401", code)
	}
}

const asJSONBody = "Content-Type: application/json"

func TestOnlyTheBrowserThatBeganSignsIn(t *testing.T) {
	p := newProvider(t)
	mine, other := p.open(), p.open()
	back := mine.leaves(p)
	begun := mine.cookie
	refused := func(what string, b *browser, target string) {
		t.Helper()
		if code, said := b.comesBack(target); code < http.StatusBadRequest || code >= http.StatusInternalServerError || b.hasSession() {
			t.Errorf("%s: %d %s, with %s; want it refused", what, code, said, b.cookie)
		}
	}
	refused("another browser, which has not begun", other, back)
	_ = other.leaves(p)
	refused("another browser, which has begun its own way", other, back)
	values, _ := url.ParseQuery(strings.TrimPrefix(back, EndPath+"?"))
	refused("without a state", mine, EndPath+"?code="+values.Get("code"))
	refused("with two states", mine, back+"&state=x")
	refused("without a code", mine, EndPath+"?state="+values.Get("state"))
	mine.cookie = begun
	refused("with another code", mine, EndPath+"?code=x&state="+values.Get("state"))
	mine.cookie = begun
	refused("with the provider's no", mine, back+"&error=access_denied")
	mine.cookie = begun
	mine.server.signIn.now = func() time.Time { return time.Now().Add(wayLife + time.Second) }
	refused("too late", mine, back)
	mine.server.signIn.now = time.Now
	session, err := mine.server.signIn.seal.close(way{Begun: openid.Begun{State: values.Get("state")}, Until: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	mine.cookie = wayCookie + "=" + session
	refused("with a session's seal in place of a way's", mine, back)
	mine.cookie = begun
	if code, said := mine.comesBack(back); code != http.StatusSeeOther {
		t.Errorf("the browser that began: %d %s", code, said)
	}
	mine.cookie = begun
	refused("the same way again", mine, back)
}

func TestAnotherSiteDoesNotSendPeopleToTheProvider(t *testing.T) {
	p := newProvider(t)
	b := p.open()
	response := b.do("GET", beginPath, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	if response.StatusCode != http.StatusForbidden || len(response.Cookies()) > 0 {
		t.Errorf("a link of another site: %d, %v; want 403", response.StatusCode, response.Cookies())
	}
	way := b.leaves(p)
	if code := b.do("GET", way, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image").StatusCode; code != http.StatusForbidden {
		t.Errorf("coming back as a picture: %d; want 403", code)
	}
}

func TestAnIDTokenIsChecked(t *testing.T) {
	for what, change := range map[string]func(*provider){
		"of another signing in": func(p *provider) { p.claims = map[string]any{"nonce": "x"} },
		"of no signing in":      func(p *provider) { p.claims = map[string]any{"nonce": ""} },
		"for another client":    func(p *provider) { p.claims = map[string]any{"aud": "other"} },
		"of another issuer":     func(p *provider) { p.claims = map[string]any{"iss": "https://evil.example"} },
		"that is over":          func(p *provider) { p.life = -time.Hour },
		"with another's key":    func(p *provider) { p.signer = newKey(p.t) },
	} {
		p := newProvider(t)
		b := p.open()
		back := b.leaves(p)
		p.mu.Lock()
		change(p)
		p.mu.Unlock()
		if code, said := b.comesBack(back); code != http.StatusForbidden || b.hasSession() || strings.Contains(said, "eyJ") {
			t.Errorf("a token %s: %d %s, with %s; want 403, and nothing of the token", what, code, said, b.cookie)
		}
	}
}

// renewable signs alice in, with a token for a minute that can be renewed.
func renewable(t *testing.T) (*provider, *browser, signedIn) {
	t.Helper()
	p := newProvider(t)
	p.refreshes, p.life = 10, time.Minute
	b := p.open()
	if code, said := b.comesBack(b.leaves(p)); code != http.StatusSeeOther {
		t.Fatalf("%d %s", code, said)
	}
	told, _ := b.opened()
	if told.Renew == nil || *told.Renew < 50 || *told.Renew > 60 {
		t.Fatalf("the page is told %+v; want it to renew in a minute", told)
	}
	return p, b, told
}

func TestASessionIsRenewed(t *testing.T) {
	p, b, told := renewable(t)
	// Strangers at the same address don't end sessions.
	b.server.signIn.attempts.every = 0
	clear(b.server.signIn.attempts.of)
	for range attemptsBurst + 1 {
		_ = b.do("GET", beginPath, "", "Cookie: ").Body.Close()
	}
	old, renewed := b.cookie, signedIn{}
	p.life = time.Hour
	response := b.do("PUT", sessionPath, "{}", asJSONBody)
	if err := json.NewDecoder(response.Body).Decode(&renewed); err != nil || response.StatusCode != http.StatusOK || renewed.Renew == nil || *renewed.Renew < 3500 || renewed.Secret != told.Secret {
		t.Fatalf("renewing: %d %+v, %v; want the same session with an hour", response.StatusCode, renewed, err)
	}
	b.jar(response)
	if code := b.do("GET", vms, "").StatusCode; b.cookie == old || code != http.StatusOK {
		t.Errorf("with the new token: %d, with the old cookie: %v", code, b.cookie == old)
	}
	if code := b.do("PUT", sessionPath, "{}", asJSONBody, "Cookie: "+old).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("with a refresh token that was used: %d; want 401", code)
	}
	b.server.signIn.now = func() time.Time { return time.Now().Add(sessionLife + time.Second) }
	if code := b.do("PUT", sessionPath, "{}", asJSONBody).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("after twelve hours: %d; want 401", code)
	}
}

func TestOnlyItsPageRenewsASession(t *testing.T) {
	p, b, _ := renewable(t)
	for what, test := range map[string]struct {
		header string
		code   int
	}{
		"another page":            {sessionHeader + ": " + ofThePage, http.StatusUnauthorized},
		"another site":            {"Origin: https://evil.example", http.StatusForbidden},
		"a site of the same name": {"Sec-Fetch-Site: same-site", http.StatusForbidden},
		"nobody":                  {"Cookie: ", http.StatusUnauthorized},
	} {
		if code := b.do("PUT", sessionPath, "{}", asJSONBody, test.header).StatusCode; code != test.code {
			t.Errorf("renewing by %s: %d; want %d", what, code, test.code)
		}
	}
	p.person = "bob"
	if code := b.do("PUT", sessionPath, "{}", asJSONBody).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("renewing as another person: %d; want 401", code)
	}
}

func TestARefreshTokenThatDoesNotFitIsLeftOut(t *testing.T) {
	p := newProvider(t)
	p.refreshes = maxCookie
	b := p.open()
	if code, said := b.comesBack(b.leaves(p)); code != http.StatusSeeOther {
		t.Fatalf("%d %s", code, said)
	}
	if told, code := b.opened(); code != http.StatusOK || told.Renew != nil {
		t.Errorf("the page is told %+v, %d; want a session that ends with its token", told, code)
	}
	b.server.signIn.now = func() time.Time { return time.Now().Add(p.life + time.Second) }
	if _, code := b.opened(); code != http.StatusUnauthorized {
		t.Errorf("after the end of the token: %d; want 401", code)
	}
}

func TestAProviderThatIsAway(t *testing.T) {
	p := newProvider(t)
	p.down = true
	b := p.open()
	response := b.do("GET", beginPath, "")
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), p.server.URL) || !strings.Contains(string(text), "try again") {
		t.Errorf("answered %d %s; want a sentence that names the provider", response.StatusCode, text)
	}
	_ = b.do("GET", beginPath, "")
	if len(p.asked) != 1 {
		t.Errorf("it was asked %d times at once; want once", len(p.asked))
	}
	if b.mustNotSignIn(goodToken); b.hasSession() {
		t.Error("a token that nobody knows is taken")
	}
}

func (b *browser) mustNotSignIn(token string) {
	b.t.Helper()
	if code := b.signIn(token).StatusCode; code != http.StatusForbidden {
		b.t.Errorf("signing in with %s: %d; want 403", token, code)
	}
}
