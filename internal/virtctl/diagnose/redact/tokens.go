package redact

import (
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Tokens of withheld values are remembered if they are long enough to be told from ordinary words, in bytes. Longer ones than
// maxToken are compared by their beginning.
const (
	minToken  = 8
	minPrefix = 6
	maxToken  = 256
	// maxOfOne bounds the tokens of a namespace, maxTokens those of all.
	maxOfOne  = 100_000
	maxTokens = 1_000_000
	// maxEscapes is how often a text may have been quoted, as JSON in JSON.
	maxEscapes = 3
)

// memory has the tokens that texts must not quote.
type memory struct {
	seen map[string]bool
	// shown are tokens of allowed values. Whoever reads the diagnosis has them anyway.
	shown  map[string]bool
	sorted []string
}

func newMemory(shown map[string]bool) *memory { return &memory{seen: map[string]bool{}, shown: shown} }

// learn remembers a value's tokens, unless there are limit new ones already.
func (m *memory) learn(value string, limit int) (added int, complete bool) {
	for text := range readings(value) {
		for token := range split(text) {
			for form := range forms(token) {
				if isPlain(form) || m.seen[form] {
					continue
				}
				if added >= limit {
					return added, false
				}
				m.seen[strings.Clone(form)] = true
				m.sorted = nil
				added++
			}
		}
	}
	return added, true
}

// readings are a value, its content if it is base 64, and both without escapes.
func readings(value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		texts := []string{value}
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value)); err == nil && utf8.Valid(decoded) {
			texts = append(texts, string(decoded))
		}
		for _, text := range texts {
			for unescaped := range unescapings(clean(text)) {
				if !yield(unescaped) {
					return
				}
			}
		}
	}
}

// mask replaces the tokens of a text that are remembered, and those that may be a key.
func (m *memory) mask(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		end := len(strings.TrimRightFunc(line, func(r rune) bool { return isSeparator(r) || r == '.' || r == '…' }))
		for at := 0; at < len(line); {
			length := strings.IndexFunc(line[at:], isBoundary)
			if length < 0 {
				length = len(line) - at
			}
			run := line[at : at+length]
			isLast := at < end && end <= at+length
			if m.isSecret(run, isLast, isLast && !strings.HasSuffix(line, "\n")) {
				run = Withheld
			}
			out.WriteString(run)
			at += length
			if at < len(line) {
				_, size := utf8.DecodeRuneInString(line[at:])
				out.WriteString(line[at : at+size])
				at += size
			}
		}
	}
	return out.String()
}

// isSecret judges a run between two boundaries. The last one of a line, and that of a text even more, may have been cut.
func (m *memory) isSecret(run string, isLast, endsText bool) bool {
	if len(run) < minPrefix {
		return false
	}
	for text := range unescapings(run) {
		last := ""
		for token := range split(text) {
			if m.has(token) || isKey(token) {
				return true
			}
			last = token
		}
		if isLast && m.begins(last, endsText) {
			return true
		}
	}
	return false
}

func (m *memory) has(token string) bool {
	if len(m.seen) == 0 {
		return false
	}
	for form := range forms(token) {
		if m.seen[form] && !m.shown[form] {
			return true
		}
	}
	return false
}

// begins reports whether a remembered token begins with one that may have been cut.
func (m *memory) begins(token string, evenPlain bool) bool {
	if len(m.seen) == 0 || len(token) < minPrefix {
		return false
	}
	if m.sorted == nil {
		m.sorted = slices.Sorted(maps.Keys(m.seen))
	}
	token = strings.TrimRight(token, ".…")
	trimmed := strings.TrimLeft(token, punctuation)
	for _, start := range []string{token, trimmed, trimmed[strings.LastIndexAny(trimmed, inner)+1:]} {
		if len(start) < minPrefix || m.shown[start] || !evenPlain && isWord(start) {
			continue
		}
		at, _ := slices.BinarySearch(m.sorted, start)
		for ; at < len(m.sorted) && strings.HasPrefix(m.sorted[at], start); at++ {
			if !m.shown[m.sorted[at]] {
				return true
			}
		}
	}
	return false
}

const (
	separators  = "\"'`=:,;<>{}[]()\\"
	inner       = "@/?&#|"
	punctuation = ".!*-_+~^%$" + inner
)

func isSeparator(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune(separators, r)
}

// isBoundary is for texts with escapes, which a backslash does not end.
func isBoundary(r rune) bool { return r != '\\' && isSeparator(r) }

func split(text string) iter.Seq[string] { return strings.FieldsFuncSeq(text, isSeparator) }

// forms are a token, without punctuation, and its parts: of an address, a path, or a query.
func forms(token string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(token) < minToken {
			return
		}
		trimmed := strings.Trim(token, punctuation)
		if !yieldLong(token, yield) || trimmed != token && !yieldLong(trimmed, yield) || !strings.ContainsAny(trimmed, inner) {
			return
		}
		for part := range strings.FieldsFuncSeq(trimmed, func(r rune) bool { return strings.ContainsRune(inner, r) }) {
			if !yieldLong(strings.Trim(part, punctuation), yield) {
				return
			}
		}
	}
}

func yieldLong(form string, yield func(string) bool) bool {
	return len(form) < minToken || yield(form[:min(len(form), maxToken)])
}

// isPlain reports whether a token tells nothing: messages and logs are full of such ones.
func isPlain(token string) bool {
	return isWord(token) || words()[token] || strings.Contains(token, "/") && isWord(path.Replace(token))
}

// path turns a path of plain words into one.
var path = strings.NewReplacer("/", "", ".", "")

func isWord(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' && r != '_' })
}

// words are Drydock's and Kubernetes' own: names of fields and of kinds.
var words = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{"--kubeconfig": true, "cloudInitNoCloud": true, "last-applied-configuration": true, "qemu-system-x86_64": true,
		"qemu-system-aarch64": true, "qemu-system-s390x": true}
	for kind, rule := range kinds() {
		out[kind] = true
		addNames(&rule, out)
	}
	return out
})

func addNames(rule *rule, to map[string]bool) {
	for name, of := range rule.fields {
		to[name] = true
		addNames(&of, to)
	}
}

// minKey is the length of words that may be a key, a certificate or a token.
const minKey = 40

func isKey(token string) bool {
	if len(token) < minKey {
		return false
	}
	for run := range strings.FieldsFuncSeq(token, func(r rune) bool {
		return !isLetterOrDigit(r) && !strings.ContainsRune("+/_-", r)
	}) {
		if len(run) >= minKey && isMixed(run) {
			return true
		}
	}
	return false
}

func isLetterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// isMixed reports whether a text has capitals, small letters and digits: names of objects and digests have not.
func isMixed(text string) bool {
	return strings.ContainsFunc(text, unicode.IsUpper) && strings.ContainsFunc(text, unicode.IsLower) && strings.ContainsFunc(text, unicode.IsDigit)
}

// unescapings are a text as it is, and as it was before it was quoted, as JSON or Go quote.
func unescapings(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for range maxEscapes + 1 {
			if !yield(text) {
				return
			}
			unescaped := unescape(text)
			if unescaped == text {
				return
			}
			text = unescaped
		}
	}
}

func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for text != "" {
		at := strings.IndexByte(text, '\\')
		if at < 0 || at+1 == len(text) {
			break
		}
		out.WriteString(text[:at])
		r, isByte, length := escaped(text[at+1:])
		if isByte {
			out.WriteByte(byte(r))
		} else {
			out.WriteRune(r)
		}
		text = text[at+1+length:]
	}
	out.WriteString(text)
	return strings.ToValidUTF8(out.String(), "\ufffd")
}

// escaped returns the character after a backslash, and its length.
func escaped(text string) (r rune, isByte bool, length int) {
	switch text[0] {
	case 'n', 'r', 't', 'b', 'f', 'v', 'a':
		return ' ', false, 1
	case 'u', 'U', 'x':
		digits := map[byte]int{'u': 4, 'U': 8, 'x': 2}[text[0]]
		if len(text) > digits {
			if code, err := strconv.ParseUint(text[1:1+digits], 16, 32); err == nil {
				return rune(code), text[0] == 'x', 1 + digits
			}
		}
	}
	r, length = utf8.DecodeRuneInString(text)
	return r, false, length
}
