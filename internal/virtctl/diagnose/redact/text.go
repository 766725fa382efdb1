package redact

import (
	"cmp"
	"encoding/base64"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Withheld lines are remembered if they are long enough to be told from ordinary words.
const (
	minEcho   = 8
	maxEcho   = 4 << 10
	maxEchoes = 100_000
)

// echoes are withheld values that texts must not quote.
type echoes struct {
	seen map[string]bool
	// full means that some values are not remembered: no text can be allowed then.
	full     bool
	replacer *strings.Replacer
}

func (e *echoes) learn(value any) {
	switch value := value.(type) {
	case string:
		e.learnText(value)
		if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && utf8.Valid(decoded) {
			e.learnText(string(decoded))
		}
	case []any:
		for _, element := range value {
			e.learn(element)
		}
	case map[string]any:
		for _, element := range value {
			e.learn(element)
		}
	}
}

// learnText remembers each line, and the value of a line like 'name: value'.
func (e *echoes) learnText(text string) {
	for line := range strings.Lines(text) {
		e.add(line)
		if _, of, isPair := strings.Cut(line, ": "); isPair {
			e.add(of)
		}
	}
}

func (e *echoes) add(line string) {
	if line = strings.Trim(line, " \t\r\n\"'-,{}[]"); len(line) < minEcho || len(line) > maxEcho || e.seen[line] {
		return
	}
	if len(e.seen) >= maxEchoes {
		e.full = true
		return
	}
	e.seen[line] = true
	e.replacer = nil
}

func (e *echoes) build() {
	// The replacer prefers the first.
	lines := slices.SortedFunc(maps.Keys(e.seen), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(lines))
	for _, line := range lines {
		pairs = append(pairs, line, Withheld)
	}
	e.replacer = strings.NewReplacer(pairs...)
}

func (e *echoes) mask(text string) string {
	if e.full {
		return Withheld
	}
	if len(e.seen) == 0 {
		return text
	}
	if e.replacer == nil {
		e.build()
	}
	return e.replacer.Replace(text)
}

var (
	addresses = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)
	// longRuns are words that may be a key, a certificate or a token.
	longRuns = regexp.MustCompile(`[A-Za-z0-9+/=_-]{40,}`)
)

// plain returns a text without unprintable characters except line feeds and tabs, with only the host of addresses, and
// without keys.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = addresses.ReplaceAllStringFunc(text, hostOf)
	return longRuns.ReplaceAllStringFunc(text, func(run string) string {
		if isMixed(run) {
			return Withheld
		}
		return run
	})
}

// isMixed reports whether a text has capitals, small letters and digits: names of objects and digests have not.
func isMixed(text string) bool {
	return strings.ContainsFunc(text, unicode.IsUpper) && strings.ContainsFunc(text, unicode.IsLower) && strings.ContainsFunc(text, unicode.IsDigit)
}

var host = regexp.MustCompile(`^[A-Za-z0-9.-]+$`)

// hostOf returns an address's scheme and host: a path or a query may have a key, as a user name has a password.
func hostOf(text string) string {
	at, err := url.Parse(text)
	if err != nil || at.Scheme == "" || !host.MatchString(at.Hostname()) && net.ParseIP(at.Hostname()) == nil {
		return Withheld
	}
	short := at.Scheme + "://" + at.Host
	if rest := strings.TrimPrefix(text, short); rest != "" && rest != "/" {
		short += "/…"
	}
	return short
}
