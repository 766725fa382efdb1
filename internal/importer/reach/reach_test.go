package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestWhereImportsMayGo(t *testing.T) {
	g, err := New([]string{"10.9.0.0/16", "fd12::/16"}, []string{"169.254.7.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	for address, why := range map[string]string{
		"93.184.216.34":          "",
		"10.8.0.1":               "",
		"2606:2800:220:1::1":     "",
		"fd00::1":                "",
		"169.254.7.1":            "", // the administrator's exception
		"127.0.0.1":              "loopback",
		"127.9.9.9":              "loopback",
		"::1":                    "loopback",
		"0.0.0.0":                "loopback",
		"0.1.2.3":                "loopback",
		"::":                     "loopback",
		"::ffff:127.0.0.1":       "loopback",
		"64:ff9b::7f00:1":        "loopback",
		"2002:7f00:1::":          "loopback",
		"169.254.169.254":        "link-local",
		"::ffff:169.254.169.254": "link-local",
		"64:ff9b::a9fe:a9fe":     "link-local",
		"fe80::1":                "link-local",
		"fe80::1%eth0":           "link-local",
		"fd00:ec2::254":          "metadata",
		"100.100.100.200":        "metadata",
		"224.0.0.1":              "many machines",
		"ff02::1":                "many machines",
		"255.255.255.255":        "many machines",
		"10.9.3.4":               "the administrator has denied",
		"64:ff9b::a09:304":       "the administrator has denied",
		"fd12::5":                "the administrator has denied",
	} {
		err := g.Judge(netip.MustParseAddr(address))
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", address, err, why)
		}
	}
}

func TestANetworkThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"10.0.0.1", "ten", "10.0.0.0/33"} {
		if _, err := New([]string{text}, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestADialerAsksBeforeItConnects(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var refused *Refused
	_, err = (&net.Dialer{Control: Guard{}.Control}).DialContext(context.Background(), "tcp", listener.Addr().String())
	if !errors.As(err, &refused) {
		t.Errorf("calling the loopback gave %v", err)
	}
	home, err := New(nil, []string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{Control: home.Control}).DialContext(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("calling what is allowed: %v", err)
	}
	_ = conn.Close()
}
