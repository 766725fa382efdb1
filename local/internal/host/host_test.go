package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/prerequisites"
)

func TestHasCapability(t *testing.T) {
	const without = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n"
	for name, test := range map[string]struct {
		status     string
		capability int
		want       bool
	}{
		"a capability that is not in the effective set": {without, unix.CAP_SYS_RESOURCE, false},
		"a capability in the effective set":             {without, unix.CAP_NET_ADMIN, true},
		"a kernel that lists none":                      {"no such line\n", unix.CAP_NET_ADMIN, false},
	} {
		process, err := procOf(t, "42/status", test.status).Proc(42)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := hasCapability(process, test.capability); err != nil || got != test.want {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
	}
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hasCapability(self, unix.CAP_NET_ADMIN); err != nil {
		t.Error(err)
	}
}

func TestProxyMode(t *testing.T) {
	for release, want := range map[string]string{
		"6.18.44-fc": "nftables", "5.13.0": "nftables", "5.10.0-28-amd64": "iptables", "4.19": "iptables", "unreadable": "iptables",
	} {
		major, minor := kernelVersion(release)
		if got := (Facts{KernelMajor: major, KernelMinor: minor}).ProxyMode(); got != want {
			t.Errorf("on kernel %s kube-proxy uses %s, want %s", release, got, want)
		}
	}
}

func TestParseNameservers(t *testing.T) {
	got := parseNameservers(strings.NewReader("search example.org\nnameserver 127.0.0.53\nnameserver 192.0.2.1\n#nameserver 192.0.2.2\nnameserver ::1\nnameserver fd00::1\nnameserver\n"))
	if want := []string{"192.0.2.1", "fd00::1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: a pod can't reach the host's loopback", got, want)
	}
}

func TestMissingNamesTheRemedy(t *testing.T) {
	if missing := (Facts{Root: true, BridgeFilter: true}).Missing(); missing != nil {
		t.Errorf("nothing is missing, yet: %q", missing)
	}
	for _, p := range prerequisites.For(prerequisites.Run) {
		f := Facts{Root: true, BridgeFilter: true, Absent: []prerequisites.Program{p}}
		missing := f.Missing()
		if len(missing) != 1 || !strings.Contains(missing[0], p.Name+" ") || !strings.HasSuffix(missing[0], " "+p.Package) {
			t.Errorf("without %s: %q", p.Name, missing)
		}
	}
	if missing := (Facts{Root: true}).Missing(); len(missing) != 1 || !strings.Contains(missing[0], "modprobe br_netfilter") {
		t.Errorf("without kernel modules: %q", missing)
	}
	if missing := (Facts{}).Missing(); len(missing) != 1 || !strings.Contains(missing[0], "sudo") {
		t.Errorf("without root: %q", missing)
	}
}
