package portforward

import "testing"

func TestParsePort(t *testing.T) {
	for text, want := range map[string]port{
		"22":            {"tcp", 22, 22},
		"2222:22":       {"tcp", 2222, 22},
		":22":           {"tcp", 0, 22},
		"udp/53":        {"udp", 53, 53},
		"UDP/5353:53":   {"udp", 5353, 53},
		"tcp/:80":       {"tcp", 0, 80},
		"65535:1":       {"tcp", 65535, 1},
		"tcp/8080:8080": {"tcp", 8080, 8080},
	} {
		if got, err := parsePort(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParsePortRefuses(t *testing.T) {
	for _, text := range []string{"", ":", "0", "65536", "80:", "80:0", "a", "-1", "1:2:3", "/80", "icmp/1", "tcp/"} {
		if got, err := parsePort(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func FuzzParsePort(f *testing.F) {
	f.Add("udp/5353:53")
	f.Add(":22")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePort(text)
		if err == nil && (p.remote == 0 || p.protocol != "tcp" && p.protocol != "udp") {
			t.Errorf("%q was read as %+v", text, p)
		}
	})
}
