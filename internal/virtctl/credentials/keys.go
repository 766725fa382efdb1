package credentials

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine is the longest line that a guest gets.
const maxLine = 16 << 10

// parseKeys returns the SSH public keys in a text, one per line. Anything else in a Secret would keep a guest
// from starting, and a private key must not reach the guest.
func parseKeys(flag, text string) ([]string, error) {
	var keys []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "-----BEGIN"):
			return nil, fmt.Errorf("--%s has no SSH public key: it may be a private one; the public key is in the file beside it that ends in .pub", flag)
		case identity(line) == "" || len(line) > maxLine || !isPlain(line):
			return nil, fmt.Errorf("--%s has a line that is no SSH public key: one looks like 'ssh-ed25519 AAAA… comment'", flag)
		case !slices.ContainsFunc(keys, func(other string) bool { return identity(other) == identity(line) }):
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("--%s has no SSH public key", flag)
	}
	return keys, nil
}

func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
}

// identity returns the algorithm and the key in a line of authorized_keys, "" for none. Options before them and
// a comment after them do not matter.
func identity(line string) string {
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0][0] == '#' {
		return ""
	}
	for i := range len(fields) - 1 {
		// The key begins with the length of its algorithm's name, and the name.
		key, err := base64.StdEncoding.DecodeString(fields[i+1])
		if err != nil || len(key) < 4 {
			continue
		}
		name, size := key[4:], binary.BigEndian.Uint32(key)
		if uint64(size) < uint64(len(name)) && string(name[:size]) == fields[i] {
			return fields[i] + " " + fields[i+1]
		}
	}
	return ""
}

func has(data map[string][]byte, key string) bool {
	for _, text := range data {
		for line := range strings.Lines(string(text)) {
			if identity(line) == identity(key) {
				return true
			}
		}
	}
	return false
}

// without returns an entry of a Secret without the keys. All other lines stay; if only blank ones are left, it
// returns "".
func without(text string, keys []string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(keys, func(key string) bool { return identity(line) == identity(key) }) {
			kept.WriteString(line)
		}
	}
	if strings.TrimSpace(kept.String()) == "" {
		return ""
	}
	return kept.String()
}
