package guestagent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

// pod has the Secrets of a guest, as a launcher's files do.
type pod struct {
	mu     sync.Mutex
	wanted accesscredential.Delivery
	err    error
	reads  int
}

func (p *pod) read() (accesscredential.Delivery, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	return p.wanted, p.err
}

func (p *pod) set(d accesscredential.Delivery, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted, p.err = d, err
}

const (
	setKeys     = "guest-ssh-add-authorized-keys"
	setPassword = "guest-set-user-password"
	done        = `{"return": {}}`
)

func keysOfAnn(keys ...string) accesscredential.Delivery {
	return accesscredential.Delivery{Keys: map[string][]string{"ann": keys}}
}

func withCredentials(t *testing.T, g *guest, p *pod, do func(*watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, g, nil)
		w.env.Credentials = p.read
		w.run(func() { do(w) })
	})
}

func (w *watched) said() string {
	synctest.Wait()
	switch c := w.Observe().Credentials; {
	case c == nil:
		return "nothing"
	case c.Failure == "":
		return "set"
	default:
		return c.Failure
	}
}

func (w *watched) expect(t *testing.T, when, want string) {
	t.Helper()
	if got := w.said(); got != want {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

func TestCredentialsFollowTheirSecrets(t *testing.T) {
	g := &guest{answers: map[string]string{setKeys: done, setPassword: done}}
	p := &pod{wanted: keysOfAnn("ssh-rsa A")}
	withCredentials(t, g, p, func(w *watched) {
		w.expect(t, "before there is an agent", "nothing")
		w.becomes(true)
		w.expect(t, "with an agent", "set")
		time.Sleep(time.Hour)
		if n := g.count(setKeys); n != 1 {
			t.Errorf("what does not change is set %d times", n)
		}
		p.set(accesscredential.Delivery{Keys: map[string][]string{"ann": {"ssh-rsa B"}}, Passwords: map[string]string{"bob": "x"}}, nil)
		time.Sleep(credentialsPoll)
		synctest.Wait()
		if keys, passwords := g.count(setKeys), g.count(setPassword); keys != 2 || passwords != 1 {
			t.Errorf("after a change keys were set %d times and passwords %d times", keys, passwords)
		}
		w.becomes(false)
		time.Sleep(time.Minute)
		w.expect(t, "when the agent has gone", "set")
		w.becomes(true)
		time.Sleep(pauseBetween)
		synctest.Wait()
		if keys := g.count(setKeys); keys != 3 {
			t.Errorf("the agent that came next was told %d times in all, want 3", keys)
		}
	})
}

func TestWhatTheAgentRefusesIsTold(t *testing.T) {
	refuses := func(desc string) string {
		return fmt.Sprintf(`{"error": {"class": "GenericError", "desc": %q}}`, desc)
	}
	for name, test := range map[string]struct {
		answers map[string]string
		wanted  accesscredential.Delivery
		err     error
		want    string
	}{
		"a Secret that can't be used": {err: errors.New("the Secret x has no key"), want: "the Secret x has no key"},
		"no such user": {answers: map[string]string{setKeys: refuses("no user ann"), setPassword: done}, wanted: keysOfAnn("k"),
			want: "setting the SSH public keys of the user ann: guest agent: guest-ssh-add-authorized-keys: no user ann"},
		"no such command": {wanted: accesscredential.Delivery{Passwords: map[string]string{"ann": "secret"}},
			want: "setting the password of the user ann: the guest agent lacks the command guest-set-user-password"},
		"an agent that repeats the password": {answers: map[string]string{setPassword: refuses("bad: secret")},
			wanted: accesscredential.Delivery{Passwords: map[string]string{"ann": "secret"}},
			want:   "setting the password of the user ann: the guest agent refuses it; its log in the guest says why"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guest{answers: test.answers}
			withCredentials(t, g, &pod{wanted: test.wanted, err: test.err}, func(w *watched) {
				w.becomes(true)
				w.expect(t, "at once", test.want)
			})
		})
	}
}

func TestOneUsersRefusalKeepsNothingFromTheOthers(t *testing.T) {
	g := &guest{answers: map[string]string{setKeys: `{"error": {"class": "GenericError", "desc": "no"}}`, setPassword: done}}
	p := &pod{wanted: accesscredential.Delivery{Keys: map[string][]string{"ann": nil, "bob": nil}, Passwords: map[string]string{"eve": "x"}}}
	withCredentials(t, g, p, func(w *watched) {
		w.becomes(true)
		synctest.Wait()
		if keys, passwords := g.count(setKeys), g.count(setPassword); keys != 2 || passwords != 1 {
			t.Errorf("%d users' keys and %d passwords were tried, want 2 and 1", keys, passwords)
		}
	})
}

func TestAFailureIsTriedAgainMoreAndMoreRarely(t *testing.T) {
	g := &guest{answers: map[string]string{}}
	p := &pod{wanted: keysOfAnn("k")}
	withCredentials(t, g, p, func(w *watched) {
		w.becomes(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := g.count(setKeys); n < 10 || n > 20 {
			t.Errorf("within an hour it was tried %d times", n)
		}
		g.set(setKeys, done)
		time.Sleep(credentialsPatience)
		w.expect(t, "when the agent has learned it", "set")
	})
}

func TestAHostileAgentsWordsAreCut(t *testing.T) {
	g := &guest{answers: map[string]string{setKeys: `{"error": {"class": "x", "desc": "` + strings.Repeat("ü", 2*maxFailure) + `"}}`}}
	withCredentials(t, g, &pod{wanted: keysOfAnn("k")}, func(w *watched) {
		w.becomes(true)
		if said := w.said(); len(said) > maxFailure || len(said) < maxFailure-2 {
			t.Errorf("a failure has %d bytes", len(said))
		}
	})
}

func TestAGuestWithoutCredentialsIsToldNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{answers: map[string]string{"guest-get-osinfo": osInfo, "guest-network-get-interfaces": addressed}}
		w := watch(t, g, nil)
		w.run(func() {
			w.becomes(true)
			w.expect(t, "with an agent", "nothing")
		})
	})
}
