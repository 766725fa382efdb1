package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
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
	crowd    *crowd
	now      func() time.Time
	attempts *attempts
}

func newSignIn(s *Server, key []byte) (*signIn, error) {
	made, err := newSeal(key, s.options.Origin)
	if err != nil {
		return nil, err
	}
	return &signIn{server: s, seal: made, crowd: newCrowd(), now: time.Now, attempts: newAttempts()}, nil
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
		return refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many people sign in at this moment: try again in a few seconds")
	}
	user, err := i.whose(r.Context(), token)
	if err != nil {
		return err
	}
	one, err := i.newSession(user.Username, token)
	if err != nil {
		return err
	}
	cookie, err := i.seal.close(one)
	if errors.Is(err, errTooLong) {
		return tokenTooLong()
	}
	if err != nil {
		return err
	}
	http.SetCookie(w, i.cookie(cookie, 0))
	return answer.JSON(w, http.StatusOK, i.about(one.ID, one.Name))
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
	for _, value := range cookies(r, signInCookie) {
		one, ok := i.seal.open(value)
		left := one.Until.Sub(i.now())
		if !ok || left <= 0 || digestOf(secret) != digestOf(secretOf(one.ID)) && !(secret == ofThePage && isOpening(r)) {
			continue
		}
		found := &session{id: one.ID, user: one.User, party: one.Party, name: one.Name, token: one.Token}
		found.enter = func(which string) (func(), error) { return i.crowd.enter(i.server.ctx, found, left, which) }
		return found, nil
	}
	return nil, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "you are not signed in, or no longer: sign in again")
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
}

func (i *signIn) about(id, name string) signedIn {
	return signedIn{About: i.server.options.About, User: name, Secret: secretOf(id)}
}

// authorize adds the token of a session, if it has one.
func authorize(header http.Header, token string) {
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}
