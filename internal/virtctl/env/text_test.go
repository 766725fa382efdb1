package env

import "testing"

func TestTextOfOthersIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"two  words\n":       "two words",
		"\x1b[31mred\x1b[0m": "[31mred [0m",
		"left\u202eright\u2066to\u200bleft\ufeff": "left right to left",
		"Zürich, 東京":                              "Zürich, 東京",
		"\xff\xfe":                                "\ufffd",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestAFlagHasOneOfItsValues(t *testing.T) {
	if got, err := OneOf("protocol", "udp", "TCP", "UDP"); err != nil || got != "UDP" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := OneOf("protocol", "icmp", "TCP", "UDP"); err == nil || err.Error() != `--protocol must be one of TCP, UDP, not "icmp"` {
		t.Errorf("got %v", err)
	}
}
