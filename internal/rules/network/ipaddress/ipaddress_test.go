package ipaddress

import "testing"

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.1.1":         "10.1.1.1",
		"01.1.1.1":         "1.1.1.1",
		"0127.000.0.03":    "127.0.0.3",
		"fd10::1":          "fd10::1",
		"fe80::1%eth0":     "fe80::1%eth0",
		"::ffff:10.1.1.1":  "::ffff:10.1.1.1",
		"::ffff:010.1.1.1": "",
		"0256.1.1.1":       "",
		"0x7f.0.0.1":       "",
		"010.1.1":          "",
		"01.1.1.1 ":        "",
		"-01.1.1.1":        "",
		"":                 "",
		"dns.example.com":  "",
	} {
		got, err := Parse(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

func TestNetworks(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.2.0/24":    "10.0.2.0/24",
		"010.010.0.0/24": "10.10.0.0/24",
		"fd10:0:2::/120": "fd10:0:2::/120",
		"10.0.2.0":       "",
		"10.0.2.0/":      "",
		"10.0.2.0/33":    "",
		"10.0.2.0/024":   "",
		"/24":            "",
		"":               "",
	} {
		got, err := ParsePrefix(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}
