package layout

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesOfACluster(t *testing.T) {
	c := Cluster{Name: "drydock", Dir: "/var/lib/drydock", Net: 77}
	c, err := c.WithNodes(MaxNodes)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.NodePodNet("node2").String(); got != "10.77.65.0/24" {
		t.Errorf("the pod network of node2 is %s", got)
	}
	// Ranges must be in their networks and must not overlap.
	seen := []netip.Prefix{c.MachineNet(), c.ServiceNet()}
	for _, node := range c.Nodes {
		p := c.NodePodNet(node)
		if !c.PodNet().Overlaps(p) || p.Bits() < c.PodNet().Bits() {
			t.Errorf("the pod network %s of %s is not within %s", p, node, c.PodNet())
		}
		for _, other := range seen {
			if p.Overlaps(other) {
				t.Errorf("the pod network %s of %s overlaps %s", p, node, other)
			}
		}
		seen = append(seen, p)
		if !c.MachineNet().Contains(c.NodeIP(node)) {
			t.Errorf("the address %s of %s is not within %s", c.NodeIP(node), node, c.MachineNet())
		}
		if veth := c.Veth(node); len(veth) > 15 {
			t.Errorf("the interface name %q has more than 15 bytes", veth)
		}
	}
	for _, ip := range []netip.Addr{c.KubernetesIP(), c.DNSIP()} {
		if !c.ServiceNet().Contains(ip) {
			t.Errorf("the service address %s is not within %s", ip, c.ServiceNet())
		}
	}
}

func TestClustersOfOneNameInTwoFoldersShareNothing(t *testing.T) {
	a, b := Cluster{Name: "c", Dir: "/a"}, Cluster{Name: "c", Dir: "/b"}
	if a.Bridge() == b.Bridge() || a.Cgroup() == b.Cgroup() || a.Table() == b.Table() {
		t.Errorf("two clusters share a bridge, a cgroup or a table: %s %s %s", a.Bridge(), a.Cgroup(), a.Table())
	}
}

func TestANodeThatIsNoneOfTheClustersIsToldWithThoseThatAre(t *testing.T) {
	c := Cluster{Name: "drydock", Nodes: []string{"node1", "node2"}}
	if err := c.Find("node2"); err != nil {
		t.Errorf("finding node2: %v", err)
	}
	err := c.Find("nope")
	if want := "cluster drydock has no node nope; it has node1, node2"; err == nil || err.Error() != want {
		t.Errorf("finding nope: %v, want %q", err, want)
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, dir := range map[string]string{
		"":                       "/data",
		"Upper":                  "/data",
		"-hyphen":                "/data",
		strings.Repeat("a", 21):  "/data",
		"relative":               "data",
		"rootfolder":             "/",
		"rootbyanotherway":       "/var/..",
		"longfolder":             "/" + strings.Repeat("d", maxDir),
		"under_score":            "/data",
		"dots.are.for.addresses": "/data",
	} {
		if err := Check(name, dir); err == nil {
			t.Errorf("name %q with folder %q was taken", name, dir)
		}
	}
	if err := Check(DefaultName, DefaultDir); err != nil {
		t.Errorf("the default was refused: %v", err)
	}
}

func TestChooseNet(t *testing.T) {
	main := Cluster{Name: DefaultName, Dir: DefaultDir}
	tests := map[string]struct {
		taken []string
		want  int
	}{
		"a free host gives the first":           {nil, 77},
		"a default route takes nothing":         {[]string{"0.0.0.0/0"}, 77},
		"a range inside ours takes it":          {[]string{"10.77.3.0/24"}, 78},
		"a range around several takes them":     {[]string{"10.64.0.0/12"}, 80},
		"a neighbour's bridge takes its subnet": {[]string{"10.77.0.0/24", "10.78.64.0/24"}, 79},
		"addresses elsewhere do not take any":   {[]string{"192.168.0.0/16", "172.16.0.0/12"}, 77},
		"a host address inside ours takes it":   {[]string{"10.77.200.1/32"}, 78},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ChooseNet(main, prefixes(t, test.taken))
			if err != nil || got != test.want {
				t.Errorf("chose %d, %v; want %d", got, err, test.want)
			}
		})
	}
	if got, err := ChooseNet(main, prefixes(t, []string{"10.0.0.0/8"})); err == nil {
		t.Errorf("chose %d where all is taken", got)
	}
}

func prefixes(t *testing.T, texts []string) []netip.Prefix {
	t.Helper()
	var all []netip.Prefix
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if len(dir) > maxDir {
		t.Fatalf("the test's folder %s is too long for a cluster", dir)
	}
	c, found, err := Load("one", dir)
	if err != nil || found {
		t.Fatalf("an empty folder has a cluster: %v %v", found, err)
	}
	c.Net = 90
	if c, err = c.WithNodes(3); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	again, found, err := Load("one", dir)
	if err != nil || !found || again.Net != 90 || len(again.Nodes) != 3 || again.Dir != dir {
		t.Errorf("read back %+v, %v, %v", again, found, err)
	}
	if fewer, err := again.WithNodes(1); err != nil || len(fewer.Nodes) != 3 {
		t.Errorf("asking for fewer nodes took some away: %v, %v", fewer.Nodes, err)
	}
	if _, _, err := Load("two", dir); err == nil || !strings.Contains(err.Error(), `belongs to cluster "one"`) {
		t.Errorf("another name was let in: %v", err)
	}
}
