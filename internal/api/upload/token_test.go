package upload

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

func key(fill byte) []byte { return bytes.Repeat([]byte{fill}, keySize) }

func entry(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

func TestKeysAreRotated(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(d time.Duration) string { return entry(now.Add(-d)) }
	for what, test := range map[string]struct {
		ring keyring
		kept []string
		new  bool
	}{
		"an empty Secret":                  {nil, nil, true},
		"a fresh key":                      {keyring{ago(time.Hour): key(1)}, []string{ago(time.Hour)}, false},
		"one that has signed for a day":    {keyring{ago(24 * time.Hour): key(1)}, []string{ago(24 * time.Hour)}, true},
		"one that no token can be of":      {keyring{ago(25 * time.Hour): key(1)}, nil, true},
		"the one before a fresh one":       {keyring{ago(25 * time.Hour): key(1), ago(time.Hour): key(2)}, []string{ago(25 * time.Hour), ago(time.Hour)}, false},
		"one that is too short":            {keyring{ago(time.Hour): []byte("short")}, []string{ago(time.Hour)}, true},
		"what is no key":                   {keyring{"hello": key(1)}, nil, true},
		"one of a clock that was years on": {keyring{ago(-9000 * time.Hour): key(1)}, nil, true},
	} {
		before := maps.Clone(test.ring)
		next, changed := test.ring.rotated(now, func(b []byte) { copy(b, key(9)) })
		want := slices.Clone(test.kept)
		if test.new {
			want = append(want, entry(now))
			if name, _ := next.newest(); name != entry(now) || !bytes.Equal(next[name], key(9)) {
				t.Errorf("%s: the new key is not the one that signs", what)
			}
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(next)); changed != test.new || !slices.Equal(got, want) {
			t.Errorf("%s: keys %v (changed: %v), want %v", what, got, changed, want)
		}
		if !maps.EqualFunc(before, test.ring, bytes.Equal) {
			t.Errorf("%s: the ring that was read was changed", what)
		}
	}
}

func TestATokenIsForOneClaimAndAShortWhile(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ring := keyring{entry(now.Add(-25 * time.Hour)): key(1), entry(now): key(2)}
	allowed := grant{Namespace: "ns", PVC: "disk", UID: "u-1"}
	sign := func(g grant, ring keyring) string {
		token, err := g.sign(ring, now)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	old := keyring{entry(now.Add(-25 * time.Hour)): key(1)}
	good := sign(allowed, ring)
	head, rest, _ := strings.Cut(good, ".")
	for what, test := range map[string]struct {
		token string
		ring  keyring
		at    time.Duration
		says  string
	}{
		"fresh":                          {good, ring, 0, ""},
		"almost at its end":              {good, ring, tokenLife, ""},
		"expired":                        {good, ring, tokenLife + 2*time.Minute, "has expired"},
		"from the future":                {good, ring, -2 * time.Minute, "not one of this proxy"},
		"by the key before":              {sign(allowed, old), ring, 0, ""},
		"by a key that is gone":          {sign(allowed, old), keyring{entry(now): key(2)}, 0, "not one of this proxy"},
		"by another key of that name":    {sign(allowed, keyring{entry(now): key(7)}), ring, 0, "not one of this proxy"},
		"changed":                        {head + "." + flip(rest), ring, 0, "not one of this proxy"},
		"without a signature":            {unsigned(t, allowed, now), ring, 0, "not one of this proxy"},
		"of another issuer":              {foreign(t, ring, now, "someone", audience), ring, 0, "not one of this proxy"},
		"for another audience":           {foreign(t, ring, now, issuer, "someone"), ring, 0, "not one of this proxy"},
		"no token":                       {"a.b.c", ring, 0, "not one of this proxy"},
		"when there are no keys, either": {good, nil, 0, "not one of this proxy"},
	} {
		got, err := verify(test.ring, test.token, now.Add(test.at))
		switch {
		case test.says == "" && (err != nil || got != allowed):
			t.Errorf("%s: %+v, %v", what, got, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q", what, err, test.says)
		}
	}
}

// flip changes one letter.
func flip(text string) string {
	b := []byte(text)
	if b[5] == 'A' {
		b[5] = 'B'
	} else {
		b[5] = 'A'
	}
	return string(b)
}

func unsigned(t *testing.T, g grant, now time.Time) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: key(2)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(g).Claims(jwt.Claims{Issuer: issuer, Expiry: jwt.NewNumericDate(now.Add(time.Hour))}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	// {"alg":"none"}
	parts := strings.Split(token, ".")
	return "eyJhbGciOiJub25lIn0." + parts[1] + "."
}

func foreign(t *testing.T, ring keyring, now time.Time, by, to string) string {
	t.Helper()
	name, _ := ring.newest()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: ring[name]}, (&jose.SignerOptions{}).WithHeader("kid", name))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(grant{"ns", "disk", "u-1"}).
		Claims(jwt.Claims{Issuer: by, Audience: jwt.Audience{to}, Expiry: jwt.NewNumericDate(now.Add(time.Hour))}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
