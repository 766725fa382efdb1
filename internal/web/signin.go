package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/answer"
)

const (
	// sessionLife is how long a session lasts, if its token does.
	sessionLife = 12 * time.Hour
	// askPatience bounds the question whose a token is.
	askPatience   = 10 * time.Second
	maxTokenBytes = 2500
	maxReview     = 64 << 10
	maxShownName  = 128
	// signInCookie is given by a browser to this host alone, over TLS, and can't be set by another host.
	signInCookie = "__Host-drydock-web"
	// ofThePage is the header of a page of this origin that does not know its session's secret yet: a page of another
	// origin can't set it.
	ofThePage  = "cluster"
	signInPath = "/signin"
	reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// signIn gives sessions to people who show a token. A session is in its cookie, encrypted, so that any replica, also one
// that was started later, serves it. A server keeps nothing but the open streams and requests.
type signIn struct {
	server   *Server
	seal     *seal
	ways     *seal
	provider IdentityProvider
	crowd    *crowd
	now      func() time.Time
	attempts *attempts
}

func newSignIn(s *Server, key []byte) (*signIn, error) {
	sessions, err := newSeal(key, forSession, s.options.Origin)
	if err != nil {
		return nil, err
	}
	ways, err := newSeal(key, forWay, s.options.Origin)
	if err != nil {
		return nil, err
	}
	return &signIn{server: s, seal: sessions, ways: ways, provider: s.options.SignIn.Provider, crowd: newCrowd(), now: time.Now, attempts: newAttempts()}, nil
}

// serve answers the requests that lead to a session. It reports false for other paths.
func (i *signIn) serve(w http.ResponseWriter, r *http.Request, path string) (bool, error) {
	switch {
	case path == signInPath:
		return true, answer.JSON(w, http.StatusOK, map[string]bool{"token": true, "provider": i.provider != nil})
	case path == beginPath && i.provider != nil:
		i.show(w, i.leave(w, r))
	case path == EndPath && i.provider != nil:
		i.show(w, i.comeBack(w, r))
	default:
		return false, nil
	}
	return true, nil
}

// begin begins a session for the owner of a token.
func (i *signIn) begin(w http.ResponseWriter, r *http.Request, body []byte) error {
	var given struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return malformed("signing in: the body is not JSON with a token")
	}
	token := strings.TrimSpace(given.Token)
	if !isToken(token) {
		return malformed("signing in: this is no token: a token has letters, digits and -._~+/= only")
	}
	if len(token) > maxTokenBytes {
		return tokenTooLong()
	}
	if !i.attempts.allow(callerOf(r)) {
		return tooManyAttempts()
	}
	user, err := i.whose(r.Context(), token)
	if err != nil {
		return err
	}
	one, err := i.newSession(user.Username, token)
	if err != nil {
		return err
	}
	if err := i.give(w, &one); err != nil {
		return err
	}
	return answer.JSON(w, http.StatusOK, i.about(one))
}

// newSession returns a session that lasts as long as its token, and not longer than a day's work.
func (i *signIn) newSession(username, token string) (sealed, error) {
	now := i.now()
	until := now.Add(sessionLife)
	if end, has := expiry(token); has && end.Before(until) {
		until = end
	}
	if !until.After(now) {
		return sealed{}, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "signing in: this token has expired: get a new one")
	}
	id, _ := newSecret()
	return sealed{ID: id, User: standIn(username), Party: standIn(partyOf(username)), Name: shortened(username), Until: until, Token: token}, nil
}

// standIn returns a short text of one length in place of a name.
func standIn(name string) string {
	digest := digestOf(name)
	return base64.RawURLEncoding.EncodeToString(digest[:16])
}

// expiry returns the end of a JSON web token that the API server has just accepted. Other tokens don't show theirs.
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expiry <= 0 || claims.Expiry > math.MaxInt32*1000 {
		return time.Time{}, false
	}
	return time.Unix(int64(claims.Expiry), 0), true
}

// secretOf returns the half of a session that only its page has, beside the cookie. So a page does not go on with
// the rights of another person who has signed in meanwhile in the same browser.
func secretOf(id string) string {
	digest := digestOf("page " + id)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

func tokenTooLong() error {
	return refusal(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
		"signing in: a token of at most %d bytes fits into a session: use one of fewer groups, or of a service account", maxTokenBytes)
}

func (i *signIn) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: signInCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// isToken says that a text can stand in the header of a bearer token and means only itself there.
func isToken(text string) bool {
	for k := range len(text) {
		c := text[k]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/=", rune(c)) {
			return false
		}
	}
	return text != ""
}

func shortened(name string) string {
	name = plain(strings.ToValidUTF8(name, "?"))
	if letters := []rune(name); len(letters) > maxShownName {
		return string(letters[:maxShownName]) + "…"
	}
	return name
}

// whose asks the API server whose a token is.
func (i *signIn) whose(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	var review authenticationv1.SelfSubjectReview
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	header := http.Header{"Accept": {string(jsonAnswer)}, "Content-Type": {string(jsonAnswer)}}
	authorize(header, token)
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	response, err := i.server.send(ctx, call{method: http.MethodPost, path: reviewPath}, header, body)
	if err != nil {
		return review.Status.UserInfo, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReview))
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		return review.Status.UserInfo, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "the cluster does not accept this token: it may have expired, or be of another cluster")
	case err != nil || response.StatusCode != http.StatusCreated || json.Unmarshal(text, &review) != nil:
		return review.Status.UserInfo, unavailable("the API server does not say whose token this is: it answered with %d: try again later", response.StatusCode)
	case review.Status.UserInfo.Username == "" || review.Status.UserInfo.Username == "system:anonymous":
		return review.Status.UserInfo, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "the cluster knows no user by this token")
	}
	return review.Status.UserInfo, nil
}

// find returns the session of both halves. It has no context until something is open.
func (i *signIn) find(r *http.Request, secret string) (*session, error) {
	one, ok := i.sealedOfRequest(r, secret)
	if !ok {
		return nil, notSignedIn()
	}
	return i.sessionOf(one), nil
}

func (i *signIn) sessionOf(one sealed) *session {
	left := one.Until.Sub(i.now())
	found := &session{id: one.ID, user: one.User, party: one.Party, token: one.Token, about: i.about(one)}
	found.enter = func(which string) (func(), error) { return i.crowd.enter(i.server.ctx, found, left, which) }
	return found
}

func (i *signIn) sealedOfRequest(r *http.Request, secret string) (sealed, bool) {
	for _, value := range cookies(r, signInCookie) {
		var one sealed
		if !i.seal.open(value, &one) || !one.Until.After(i.now()) {
			continue
		}
		if digestOf(secret) == digestOf(secretOf(one.ID)) || secret == ofThePage && isOpening(r) {
			return one, true
		}
	}
	return sealed{}, false
}

// isOpening reports whether a page asks for its session, and so for the session's secret.
func isOpening(r *http.Request) bool {
	return r.Method == http.MethodGet && r.RequestURI == sessionPath && len(r.Header["Upgrade"]) == 0
}

func (i *signIn) remove(w http.ResponseWriter, one *session) {
	http.SetCookie(w, i.cookie("", -1))
	i.crowd.end(one.id)
}

// signedIn is told to a page.
type signedIn struct {
	About
	User   string `json:"user"`
	Secret string `json:"secret"`
	// Renew is in how many seconds the session needs a new token, if it can get one. It may be past.
	Renew *int `json:"renew,omitempty"`
}

func (i *signIn) about(one sealed) signedIn {
	told := signedIn{About: i.server.options.About, User: one.Name, Secret: secretOf(one.ID)}
	if one.Refresh != "" {
		told.Renew = new(int(one.Renew.Sub(i.now()).Seconds()))
	}
	return told
}

// authorize adds the token of a session, if it has one.
func authorize(header http.Header, token string) {
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}
