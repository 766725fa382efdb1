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

// The firewall of a cluster has two halves. Our own table masquerades the cluster's addresses and drops unwanted
// packets to it. But a packet that one table accepts can be dropped by another, so the host's own firewall needs
// rules that accept the cluster's packets. They are found again by their comment, the name of our table.

// ownTable drops packets from elsewhere to nodes and pods, except replies and the administrator's own DNAT, and
// packets to etcd that are not from the host.
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

// Netfilter hooks of the host's firewalls, by their names in nftables.
const (
	input   = "input"
	forward = "forward"
)

type accepted struct {
	hook string
	// The same condition for the two programs.
	nft, iptables string
}

// Nodes and pods reach the API server, the host's name server, each other and the world, and the host reaches
// them. The administrator's firewall decides about other services of the host.
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

// Our rules come first in the host's firewalls.
func openFirewall(c layout.Cluster) error {
	if err := nft(ownTable(c)); err != nil {
		return err
	}
	return throughFirewalls(c, needs(c))
}

func closeFirewall(c layout.Cluster) error {
	return errors.Join(nft(fmt.Sprintf("table ip %[1]s\ndelete table ip %[1]s\n", c.Table())), throughFirewalls(c, nil))
}

func throughFirewalls(c layout.Cluster, rules []accepted) error {
	managed, err := throughIPTables(c, rules)
	if err != nil {
		return err
	}
	return throughNFTables(c, rules, managed)
}

// managed is false if iptables is not installed, its table does not exist, or only nft can read it.
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
	// One transaction: the rules are never missing for a packet.
	return true, feed("*filter\n"+script.String()+"COMMIT\n", "iptables-restore", "-w", "-n")
}

// hasFilterTable reports whether the kernel has the filter table of iptables, legacy or nft. Calling
// iptables would create it.
func hasFilterTable() bool {
	if old, err := os.ReadFile("/proc/net/ip_tables_names"); err == nil && slices.Contains(strings.Fields(string(old)), "filter") {
		return true
	}
	tables, err := exec.Command("nft", "list", "tables", "ip").Output()
	return err == nil && slices.Contains(strings.Split(string(tables), "\n"), "table ip filter")
}

// ours reports whether a line of `iptables -S` is our rule: by its comment, or as one of the two rules
// of earlier builds.
func ours(c layout.Cluster, line string) bool {
	fields := strings.Fields(line)
	if i := slices.Index(fields, "--comment"); i >= 0 && i+1 < len(fields) {
		return strings.Trim(fields[i+1], `"`) == c.Table()
	}
	return line == "-A FORWARD -i "+c.Bridge()+" -j ACCEPT" || line == "-A FORWARD -o "+c.Bridge()+" -j ACCEPT"
}

func nft(rules string) error { return feed(rules, "nft", "-f", "-") }

func feed(rules, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("changing the firewall with %s: %w: %s", program, err, out)
	}
	return nil
}
