package migrationproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

func TestWhereMigrationsAreListenedFor(t *testing.T) {
	v4, v6 := "10.244.1.7", "fd00::7"
	on := func(name string, addresses ...string) NetworkInterface {
		i := NetworkInterface{Name: name}
		for _, a := range addresses {
			i.Addresses = append(i.Addresses, netip.MustParseAddr(a))
		}
		return i
	}
	pods := on("eth0", v4)
	for name, c := range map[string]struct {
		network    string
		pod        string
		interfaces []NetworkInterface
		want       string
		missing    string
	}{
		"no network is configured":                        {"", v4, []NetworkInterface{pods, on(Interface, "192.0.2.9")}, v4, ""},
		"the network's interface is there":                {"ns/net", v4, []NetworkInterface{pods, on(Interface, "192.0.2.9")}, "192.0.2.9", ""},
		"it is not":                                       {"ns/net", v4, []NetworkInterface{pods, on("net1", "192.0.2.9")}, v4, "this pod has no interface migration0"},
		"this pod has no interface at all":                {"ns/net", v4, nil, v4, "this pod has no interface migration0"},
		"it has no address yet":                           {"ns/net", v4, []NetworkInterface{on(Interface)}, v4, "the interface migration0 has no address that other nodes reach"},
		"its address is for its link only":                {"ns/net", v6, []NetworkInterface{on(Interface, "fe80::1", "fe80::1%migration0", "169.254.0.1")}, v6, "the interface migration0 has no address that other nodes reach"},
		"its address is of nobody":                        {"ns/net", v4, []NetworkInterface{on(Interface, "127.0.0.2", "0.0.0.0", "224.0.0.1")}, v4, "the interface migration0 has no address that other nodes reach"},
		"of both families, the pod's":                     {"ns/net", v4, []NetworkInterface{on(Interface, "fd01::9", "192.0.2.9")}, "192.0.2.9", ""},
		"of both families, the pod's is IPv6":             {"ns/net", v6, []NetworkInterface{on(Interface, "192.0.2.9", "fd01::9")}, "fd01::9", ""},
		"of the other family only":                        {"ns/net", v4, []NetworkInterface{on(Interface, "fe80::1", "fd01::9")}, "fd01::9", ""},
		"of several, the first":                           {"ns/net", v4, []NetworkInterface{on(Interface, "192.0.2.9", "192.0.2.10")}, "192.0.2.9", ""},
		"an address of IPv4 that is written as one of v6": {"ns/net", v4, []NetworkInterface{on(Interface, "fd01::9", "::ffff:192.0.2.9")}, "192.0.2.9", ""},
	} {
		got, missing := ChooseAddress(c.network, netip.MustParseAddr(c.pod), c.interfaces)
		if got.String() != c.want || missing != c.missing {
			t.Errorf("%s: %s, %q; want %s, %q", name, got, missing, c.want, c.missing)
		}
	}
}

// This process has no such interface, which must be logged once.
func TestAMissingNetworkIsSaidOnce(t *testing.T) {
	var network string
	var said []string
	address := OwnAddress("10.244.1.7", func() string { return network }, func(missing string) { said = append(said, missing) })
	for _, network = range []string{"", "ns/net", "ns/net", "", "ns/net"} {
		if got, err := address(); err != nil || got.String() != "10.244.1.7" {
			t.Errorf("with network %q: %s, %v", network, got, err)
		}
	}
	if want := "this pod has no interface " + Interface; !slices.Equal(said, []string{want, want}) {
		t.Errorf("said was %q", said)
	}
	if _, err := OwnAddress("", func() string { return "" }, nil)(); err == nil || !strings.Contains(err.Error(), "reading the pod's address") {
		t.Errorf("without an address of the pod: %v", err)
	}
}

// The network's interface appears later, and goes again.
func TestTheServerFollowsItsAddress(t *testing.T) {
	t.Cleanup(func() { noneLeft(t) })
	var wanted atomic.Pointer[netip.Addr]
	set := func(text string) {
		address := netip.MustParseAddr(text)
		wanted.Store(&address)
	}
	var l lines
	server := NewServer(&Expectations{}, &tls.Config{}, func() (netip.Addr, error) {
		if a := wanted.Load(); a != nil {
			return *a, nil
		}
		return netip.Addr{}, errors.New("there is none yet")
	}, l.logger())
	// A port of the kernel's choice could be in use at the next address.
	server.port, server.relisten = freePort(t), 5*time.Millisecond
	await := func(want string) {
		t.Helper()
		for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); server.Address() != want; <-tick {
			if time.Now().After(deadline) {
				t.Fatalf("the address is %q, want %q; %v", server.Address(), want, l.all)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	l.await(t, "have no address")
	at := func(ip string) string {
		return netip.AddrPortFrom(netip.MustParseAddr(ip), server.port).String()
	}
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"} {
		set(ip)
		await(at(ip))
		if _, err := (&Outgoing{Address: netip.MustParseAddrPort(at(ip)), Node: "n", TLS: anyone, Header: header, Log: l.logger()}).Dial(ctx, migrationwire.Control); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("at %s: %v", ip, err)
		}
	}
	// An address of another node: the present listener must stay.
	set("192.0.2.1")
	l.await(t, "can't be listened for")
	if server.Address() != at("127.0.0.1") {
		t.Errorf("the address is %q", server.Address())
	}
	cancel()
	running.Wait()
	if server.Address() != "" {
		t.Errorf("after the end the address is %q", server.Address())
	}
}
