package env

import (
	"fmt"
	"strings"
	"unicode"
)

// Plain returns a text's printable characters with single spaces. Parts of the text may come from a guest or
// another tenant, and a terminal interprets control and direction characters.
func Plain(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\ufffd"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}

// OneOf returns the allowed value that a flag has, whose case does not matter.
func OneOf(flag, value string, allowed ...string) (string, error) {
	for _, candidate := range allowed {
		if strings.EqualFold(value, candidate) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("--%s must be one of %s, not %q", flag, strings.Join(allowed, ", "), value)
}

// withoutMeaning are the characters that every shell takes as they are.
const withoutMeaning = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"

// ShellWord returns a text as one word of a shell's command.
func ShellWord(text string) string {
	if text != "" && strings.Trim(text, withoutMeaning) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
