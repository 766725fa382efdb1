package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"drydock.dev/local/internal/layout"
)

// The firewall of a cluster has two halves. The table of our own hides the cluster's
// addresses behind the host's and drops what must not reach the cluster. But what one
// table accepts, another may still drop: the host's own firewall, where there is one,
// needs rules that accept what the cluster needs. These carry the name of our table as
// their comment, by which they are found again, whatever has become of the policies. See decision 229.

// ownTable drops what comes from elsewhere to nodes and pods, but for answers and for
// what the administrator forwards by an address translation of theirs, and what is not
// from the host itself to etcd.
func ownTable(c layout.Cluster) string {
	return fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr %[2]s ip daddr != %[2]s masquerade
	}
	chain forward {
		type filter hook forward priority filter;
		oifname %[3]q iifname != %[3]q ct state established,related accept
		oifname %[3]q iifname != %[3]q ct status dnat accept
		oifname %[3]q iifname != %[3]q drop
	}
	chain input {
		type filter hook input priority filter;
		ip daddr %[4]s tcp dport { 2379, 2380 } iifname != "lo" drop
	}
}
`, c.Table(), c.Subnet(), c.Bridge(), c.HostIP())
}

// Hooks of the kernel that other firewalls guard, as nftables names them.
const (
	input   = "input"
	forward = "forward"
)

// accepted is a rule that lets packets of the cluster through a firewall of the host.
type accepted struct {
	hook string
	// nft and iptables are the same condition in the languages of both programs.
	nft, iptables string
}

// needs are the rules for what the cluster needs: nodes and pods reach the API server,
// the host's name server, each other and the world, and the host reaches them. Other
// services of the host are for its firewall to open.
func needs(c layout.Cluster) []accepted {
	from, to := fmt.Sprintf("iifname %q", c.Bridge()), fmt.Sprintf("oifname %q", c.Bridge())
	in, out := "-i "+c.Bridge(), "-o "+c.Bridge()
	api := c.HostIP().String()
	return []accepted{
		{input, from + " ct state established,related", in + " -m conntrack --ctstate ESTABLISHED,RELATED"},
		{input, from + " ip daddr " + api + " tcp dport 6443", in + " -d " + api + " -p tcp --dport 6443"},
		{input, from + " tcp dport 53", in + " -p tcp --dport 53"},
		{input, from + " udp dport 53", in + " -p udp --dport 53"},
		{input, from + " icmp type echo-request", in + " -p icmp --icmp-type echo-request"},
		{forward, from, in},
		{forward, to + " ct state established,related", out + " -m conntrack --ctstate ESTABLISHED,RELATED"},
	}
}

// openFirewall loads our table and puts our rules before those of the host's firewalls.
func openFirewall(c layout.Cluster) error {
	if err := nft(ownTable(c)); err != nil {
		return err
	}
	return throughFirewalls(c, needs(c))
}

// closeFirewall takes away our table and our rules. It asks for no policy.
func closeFirewall(c layout.Cluster) error {
	return errors.Join(nft(fmt.Sprintf("table ip %[1]s\ndelete table ip %[1]s\n", c.Table())), throughFirewalls(c, nil))
}

// throughFirewalls replaces our rules in all firewalls of the host.
func throughFirewalls(c layout.Cluster, rules []accepted) error {
	managed, err := throughIPTables(c, rules)
	if err != nil {
		return err
	}
	return throughNFTables(c, rules, managed)
}

// throughIPTables replaces our rules in the chains of iptables. managed is false where
// there are none that iptables knows: it is not installed, nothing has made its table,
// or the table is one that only nft understands.
func throughIPTables(c layout.Cluster, rules []accepted) (managed bool, err error) {
	if !hasFilterTable() {
		return false, nil
	}
	var script strings.Builder
	for _, hook := range []string{input, forward} {
		chain := strings.ToUpper(hook)
		listed, err := exec.Command("iptables", "-w", "-S", chain).Output()
		if err != nil {
			return false, nil
		}
		for line := range strings.Lines(string(listed)) {
			if ours(c, strings.TrimSpace(line)) {
				script.WriteString("-D" + strings.TrimPrefix(line, "-A"))
			}
		}
		for _, rule := range slices.Backward(rules) {
			if rule.hook == hook {
				fmt.Fprintf(&script, "-I %s %s -m comment --comment %s -j ACCEPT\n", chain, rule.iptables, c.Table())
			}
		}
	}
	if script.Len() == 0 {
		return true, nil
	}
	// One transaction: no packet finds the rules missing.
	return true, feed("*filter\n"+script.String()+"COMMIT\n", "iptables-restore", "-w", "-n")
}

// hasFilterTable reports whether the kernel has the table of iptables' filters, of its
// older or its newer kind. iptables itself would make it when asked.
func hasFilterTable() bool {
	if old, err := os.ReadFile("/proc/net/ip_tables_names"); err == nil && slices.Contains(strings.Fields(string(old)), "filter") {
		return true
	}
	tables, err := exec.Command("nft", "list", "tables", "ip").Output()
	return err == nil && slices.Contains(strings.Split(string(tables), "\n"), "table ip filter")
}

// ours recognizes a rule as `iptables -S` prints it: by its comment, or as one of the
// two that earlier builds made.
func ours(c layout.Cluster, line string) bool {
	fields := strings.Fields(line)
	if i := slices.Index(fields, "--comment"); i >= 0 && i+1 < len(fields) {
		return strings.Trim(fields[i+1], `"`) == c.Table()
	}
	return line == "-A FORWARD -i "+c.Bridge()+" -j ACCEPT" || line == "-A FORWARD -o "+c.Bridge()+" -j ACCEPT"
}

func nft(rules string) error { return feed(rules, "nft", "-f", "-") }

// feed gives a program its input.
func feed(rules, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("changing the firewall with %s: %w: %s", program, err, out)
	}
	return nil
}
