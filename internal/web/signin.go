package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/answer"
)

const (
	// sessionLife is how long a session lasts, if its token does.
	sessionLife = 12 * time.Hour
	// Attempts to sign in, of all users: each asks the API server once.
	attemptsEvery = 200 * time.Millisecond
	attemptsBurst = 20
	// askPatience bounds the question whose a token is.
	askPatience   = 10 * time.Second
	maxTokenBytes = 2500
	maxReview     = 64 << 10
	maxShownName  = 128
	// signInCookie is given by a browser to this host alone, over TLS, and can't be set by another host.
	signInCookie = "__Host-drydock-web"
	// ofThePage is the header of a page of this origin, instead of a secret: a page of another one can't set it.
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
	attempts *rate.Limiter
}

func newSignIn(s *Server, key []byte) (*signIn, error) {
	made, err := newSeal(key, s.options.Origin)
	if err != nil {
		return nil, err
	}
	return &signIn{server: s, seal: made, crowd: newCrowd(), now: time.Now, attempts: rate.NewLimiter(rate.Every(attemptsEvery), attemptsBurst)}, nil
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
	if !i.attempts.Allow() {
		return refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many people sign in at this moment: try again in a few seconds")
	}
	user, err := i.whose(r.Context(), token)
	if err != nil {
		return err
	}
	id, _ := newSecret()
	who := digestOf(user.Username + "\x00" + user.UID)
	one := sealed{ID: id, User: base64.RawURLEncoding.EncodeToString(who[:]), Name: shortened(user.Username), Until: i.now().Add(sessionLife), Token: token}
	cookie, err := i.seal.close(one)
	if errors.Is(err, errTooLong) {
		return tokenTooLong()
	}
	if err != nil {
		return err
	}
	http.SetCookie(w, i.cookie(cookie, 0))
	return answer.JSON(w, http.StatusOK, i.about(one.Name))
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

// find returns the session of a cookie. It has no context until something is open.
func (i *signIn) find(r *http.Request, secret string) (*session, error) {
	over := refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "you are not signed in, or no longer: sign in again")
	if secret != ofThePage {
		return nil, over
	}
	for _, value := range cookies(r, signInCookie) {
		one, ok := i.seal.open(value)
		left := one.Until.Sub(i.now())
		if !ok || left <= 0 {
			continue
		}
		found := &session{id: one.ID, user: one.User, name: one.Name, token: one.Token}
		found.enter = func(which string) (func(), error) { return i.crowd.enter(i.server.ctx, found, left, which) }
		return found, nil
	}
	return nil, over
}

func (i *signIn) remove(w http.ResponseWriter, one *session) {
	http.SetCookie(w, i.cookie("", -1))
	i.crowd.end(one.id)
}

// signedIn is told to a page.
type signedIn struct {
	About
	User string `json:"user"`
}

func (i *signIn) about(name string) signedIn {
	return signedIn{About: i.server.options.About, User: name}
}

// authorize adds the token of a session, if it has one.
func authorize(header http.Header, token string) {
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}
