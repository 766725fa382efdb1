package redact

import (
	"net"
	"net/url"
	"strings"
	"unicode"
)

// clean returns a text without unprintable characters except line feeds and tabs.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}

// maxScheme bounds an address's scheme, as in https.
const maxScheme = 20

// cutAddresses leaves only the scheme and the host of addresses.
func cutAddresses(text string) string {
	var out strings.Builder
	for from := 0; ; {
		length := strings.IndexByte(text[from:], ':')
		if length < 0 {
			break
		}
		at := from + length
		start := at - schemeBefore(text[:at])
		if start == at || !strings.HasPrefix(text[at:], "://") && !strings.HasPrefix(text[at:], `:\/\/`) {
			from = at + 1
			continue
		}
		address := text[start:]
		if end := strings.IndexFunc(address, endsAddress); end >= 0 {
			address = address[:end]
		}
		text, from = writeAddress(&out, text, start, address), 0
	}
	out.WriteString(text)
	return out.String()
}

// writeAddress writes the text before an address, and the address's scheme and host. It returns the rest of the text.
func writeAddress(out *strings.Builder, text string, start int, address string) string {
	out.WriteString(text[:start])
	bare := strings.TrimRight(address, "'`.,;)}\\")
	out.WriteString(hostOf(strings.ReplaceAll(bare, `\/`, "/")))
	out.WriteString(address[len(bare):])
	return text[start+len(address):]
}

func endsAddress(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"<>`, r) }

// schemeBefore returns the length of the scheme at the end of a text.
func schemeBefore(text string) int {
	length := 0
	for i := len(text) - 1; i >= max(0, len(text)-maxScheme); i-- {
		switch r := rune(text[i]); {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			length = len(text) - i
		case r >= '0' && r <= '9', r == '+', r == '.', r == '-':
		default:
			return length
		}
	}
	return length
}

// hostOf returns an address's scheme and host: a path or a query may have a key, as a user name has a password.
func hostOf(text string) string {
	at, err := url.Parse(text)
	if err != nil || at.Scheme == "" || !isHost(at.Hostname()) {
		return Withheld
	}
	short := at.Scheme + "://" + at.Host
	if rest := strings.TrimPrefix(text, short); rest != "" && rest != "/" {
		short += "/…"
	}
	return short
}

func isHost(text string) bool {
	return net.ParseIP(text) != nil || text != "" && len(text) <= maxValue && !strings.ContainsFunc(text, func(r rune) bool {
		return !isLetterOrDigit(r) && r != '.' && r != '-'
	})
}

// cutOff returns the parts of an address that hostOf leaves out.
func cutOff(text string) []string {
	at, err := url.Parse(text)
	if err != nil || hostOf(text) == Withheld {
		return []string{text}
	}
	password, _ := at.User.Password()
	parts := []string{at.User.Username(), password, at.Path, at.RawQuery, at.Fragment, at.Opaque}
	for _, of := range at.Query() {
		parts = append(parts, of...)
	}
	return parts
}
