package credentials

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func publicKey(algorithm, letter string) string {
	key := "\x00\x00\x00" + string(rune(len(algorithm))) + algorithm + "\x00\x00\x00\x08" + strings.Repeat(letter, 8)
	return algorithm + " " + base64.StdEncoding.EncodeToString([]byte(key))
}

func TestWhatIsAKey(t *testing.T) {
	a, b := publicKey("ssh-ed25519", "a"), publicKey("ecdsa-sha2-nistp256", "b")
	for what, test := range map[string]struct {
		text string
		keys []string // none: refused
	}{
		"one":                           {a + "\n", []string{a}},
		"one with a comment":            {a + " ann@desk", []string{a + " ann@desk"}},
		"one with options":              {`command="echo hi there",no-pty ` + a, []string{`command="echo hi there",no-pty ` + a}},
		"several with comments between": {"# Ann\n" + a + "\n\n" + b + "\r\n", []string{a, b}},
		"the same twice":                {a + " here\n" + a + " there\n", []string{a + " here"}},
		"nothing":                       {"\n", nil},
		"only a comment":                {"# " + a, nil},
		"a private key":                 {"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", nil},
		"a key and a private one":       {a + "\n-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", nil},
		"a word":                        {"ssh-ed25519", nil},
		"another algorithm's key":       {"ssh-rsa " + strings.Fields(a)[1], nil},
		"a key that is cut off":         {a[:20], nil},
		"a length beyond the key":       {"ssh-rsa " + base64.StdEncoding.EncodeToString([]byte("\xff\xff\xff\xffssh-rsa")), nil},
		"a control character":           {a + " \x1b[2J", nil},
		"too long a line":               {a + " " + strings.Repeat("x", maxLine), nil},
	} {
		keys, err := parseKeys("file", test.text)
		if (err != nil) != (test.keys == nil) || !slices.Equal(keys, test.keys) {
			t.Errorf("%s: %q %v", what, keys, err)
		}
	}
}

func TestWhatStaysWithoutAKey(t *testing.T) {
	a, b := publicKey("ssh-ed25519", "a"), publicKey("ssh-ed25519", "b")
	for what, test := range map[string]struct{ before, after string }{
		"another key":             {a + "\n" + b + " bob\n", b + " bob\n"},
		"comments and junk":       {"# of Ann's\n" + a + " ann\nwhat is this\n", "# of Ann's\nwhat is this\n"},
		"nothing":                 {"\n" + a, ""},
		"a key in a comment":      {"#" + a + "\n", "#" + a + "\n"},
		"what has no end of line": {b, b},
	} {
		if after := without(test.before, []string{a + " another comment"}); after != test.after {
			t.Errorf("%s stays: %q", what, after)
		}
	}
}

func TestAKeyIsEnteredBesideWhatIsThere(t *testing.T) {
	a, b := publicKey("ssh-ed25519", "a"), publicKey("ssh-ed25519", "b")
	data := map[string][]byte{}
	if !enter(data, []string{a, b}) || len(data) != 2 || enter(data, []string{b + " again", a}) {
		t.Fatalf("%q", data)
	}
	// Another user has written into the entry with the key's name.
	for name, text := range data {
		if strings.HasPrefix(string(text), a) {
			data[name] = []byte(b)
		}
	}
	if !enter(data, []string{a}) || len(data) != 2 || !has(data, a) || !has(data, b) {
		t.Errorf("%q", data)
	}
}
