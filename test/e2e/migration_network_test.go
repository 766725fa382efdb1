//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// echoInterval is short beside a migration, and long beside an echo: the guest is emulated.
const echoInterval = 100 * time.Millisecond

// traffic is a connection to a guest's echo that sends a line and awaits it, again and again.
type traffic struct {
	t    *testing.T
	conn net.Conn
	stop chan struct{}
	done sync.WaitGroup

	mu sync.Mutex
	// echoes counts the lines that have come back; longest is the longest round trip.
	echoes  int
	longest time.Duration
	failure error
}

func newTraffic(t *testing.T, conn net.Conn) *traffic {
	t.Helper()
	c := &traffic{t: t, conn: conn, stop: make(chan struct{})}
	c.done.Go(c.talk)
	t.Cleanup(c.end)
	return c
}

func (c *traffic) talk() {
	from := bufio.NewReader(c.conn)
	for i := 0; ; i++ {
		select {
		case <-c.stop:
			return
		case <-time.After(echoInterval):
		}
		took, err := echo(c.conn, from, fmt.Sprintf("line %d", i))
		c.mu.Lock()
		c.echoes, c.longest, c.failure = c.echoes+1, max(c.longest, took), err
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func echo(conn net.Conn, from *bufio.Reader, line string) (time.Duration, error) {
	began := time.Now()
	if err := conn.SetDeadline(began.Add(patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return 0, err
	}
	got, err := from.ReadString('\n')
	if err == nil && strings.TrimSpace(got) != line {
		err = fmt.Errorf("%q came back for %q", got, line)
	}
	return time.Since(began), err
}

// lives waits until more lines have come back, and returns the longest round trip since the last call.
func (c *traffic) lives(when string) time.Duration {
	c.t.Helper()
	c.mu.Lock()
	before := c.echoes
	c.mu.Unlock()
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); ; <-tick {
		c.mu.Lock()
		echoes, longest, failure := c.echoes, c.longest, c.failure
		c.mu.Unlock()
		switch {
		case failure != nil:
			c.t.Fatalf("the connection has ended %s: %v", when, failure)
		case echoes > before+2: // the first may have been under way
			c.mu.Lock()
			c.longest = 0
			c.mu.Unlock()
			return longest
		case time.Now().After(deadline):
			c.t.Fatalf("nothing comes back on the connection %s", when)
		}
	}
}

func (c *traffic) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	_ = c.conn.Close()
	c.done.Wait()
}

// onCable gives a VM an interface on a network that both nodes share, and an address there by cloud-init.
func onCable(vm *v1.VirtualMachine, network, address string) {
	spec := &vm.Spec.Template.Spec
	spec.Networks = append(spec.Networks, v1.Network{Name: network, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: network}}})
	spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
		v1.Interface{Name: network, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		v1.Disk{Name: "seed", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "seed", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{
		UserData:    "#cloud-config\n",
		NetworkData: fmt.Sprintf("{version: 2, ethernets: {eth0: {dhcp4: true}, eth1: {addresses: [%q]}}}\n", address),
	}}})
}

// TestAConnectionLivesThroughMigrations moves a guest on a network that both nodes share to the other node and
// back, while one connection carries lines. Migrations have their own network; no virt-handler is on it when the
// guest goes, and each is when it returns. Another interface is plugged and unplugged meanwhile. Only here
// bridges, network plugins and peers are real. Not parallel: it restarts virt-handler.
func TestAConnectionLivesThroughMigrations(t *testing.T) {
	const network, address = "red", "203.0.113.7"
	c, dedicated := newCable(t, network, "203.0.113.1/24"), newMigrationNetwork(t)
	ns := newNamespace(t)
	newAttachment(t, ns, network, c.attachment())
	vm := newMigratableVM(t, ns, "talks")
	onCable(vm, network, address+"/24")
	g := bootVM(t, vm)
	was := lookAt(t, g, network)
	talk := newTraffic(t, dialFrom(t, c.first, address+":7777"))
	t.Logf("before, an echo took at most %v", talk.lives("before the first migration"))

	configure(t, fmt.Sprintf(`{"spec":{"configuration":{"migrations":{"network":%q}}}}`, dedicated.name),
		`{"spec":{"configuration":{"migrations":{"network":null}}}}`)
	moved := migrated(t, ns, "talks")
	t.Logf("figure migration: an echo took at most %v on the way there", talk.lives("on the way there"))
	dedicated.unused(t, moved)
	was.stays(t, moved)

	t.Cleanup(func() { annotateHandlers(t, "") })
	annotateHandlers(t, dedicated.name+"@migration0")
	talk.lives("when virt-handler has been replaced")
	passed := dedicated.passed(t)
	moved = migrated(t, ns, "talks")
	t.Logf("figure migration: an echo took at most %v on the way back", talk.lives("on the way back"))
	dedicated.used(t, moved, passed)
	was.stays(t, moved)
	talk.lives("when the pods are gone that the guest was in before")
	toldOfDowntimes(t, ns, 2)
	nics := changeNICs(t, ns, "talks", c)
	talk.lives("when other interfaces have come and gone")
	talk.end()
	nics.restarts()
	removeVM(t, ns, "talks") // the pods must be gone before their cable
}

// looks is the guest's identity, from inside and outside, before a migration.
type looks struct {
	network, mac, identity string
	uptime                 time.Duration
	vmi                    *v1.VirtualMachineInstance
}

func lookAt(t *testing.T, g *guest, network string) *looks {
	t.Helper()
	vmi := awaitRunning(t, g.namespace, g.name)
	return &looks{network: network, mac: macOn(t, vmi, network), identity: g.identity(), uptime: g.uptime(), vmi: vmi}
}

func (l *looks) stays(t *testing.T, moved *v1.VirtualMachineInstance) {
	t.Helper()
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	g := login(t, moved.Namespace, moved.Name)
	if now := g.identity(); now != l.identity {
		t.Errorf("on %s the guest is %q, want %q", moved.Status.NodeName, now, l.identity)
	}
	if now := g.uptime(); now < l.uptime {
		t.Errorf("on %s the guest's uptime is %v, want more than %v", moved.Status.NodeName, now, l.uptime)
	}
	if mac := macOn(t, moved, l.network); moved.UID != l.vmi.UID || mac != l.mac {
		t.Errorf("on %s it is VMI %s with MAC %s, want %s with %s", moved.Status.NodeName, moved.UID, mac, l.vmi.UID, l.mac)
	}
	startedOnce(t, moved.Namespace, moved.Name)
}

func macOn(t *testing.T, vmi *v1.VirtualMachineInstance, network string) string {
	t.Helper()
	for i := range vmi.Status.Interfaces {
		if iface := &vmi.Status.Interfaces[i]; iface.Name == network {
			return iface.MAC
		}
	}
	t.Fatalf("VMI %s has no interface %s: %+v", vmi.Name, network, vmi.Status.Interfaces)
	return ""
}

func targetAddress(t *testing.T, vmi *v1.VirtualMachineInstance) netip.Addr {
	t.Helper()
	at, err := netip.ParseAddrPort(vmi.Status.MigrationState.TargetNodeAddress)
	if err != nil {
		t.Fatalf("reading the address of the migration's target: %v", err)
	}
	return at.Addr()
}

// migrationNetwork is a network for migrations alone, which assigns addresses.
type migrationNetwork struct {
	*cable
	subnet netip.Prefix
}

func newMigrationNetwork(t *testing.T) *migrationNetwork {
	t.Helper()
	m := &migrationNetwork{cable: newCable(t, "mig0", ""), subnet: netip.MustParsePrefix("198.51.100.0/24")}
	for i, node := range []string{node1, node2} {
		config := m.attachment()
		config["ipam"] = map[string]any{"type": "host-local", "dataDir": "/run/cni-" + m.name, "ranges": []any{[]any{map[string]any{
			"subnet": m.subnet.String(), "rangeStart": fmt.Sprintf("198.51.100.%d", 10+50*i), "rangeEnd": fmt.Sprintf("198.51.100.%d", 50+50*i),
		}}}}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, onNode(node, "net.d", "multus", "net.d", m.name+".conf"), text, 0o644)
	}
	newAttachment(t, "kubevirt", m.name, nil)
	return m
}

// unused checks that a migration used another network, and that its node reports why.
func (m *migrationNetwork) unused(t *testing.T, moved *v1.VirtualMachineInstance) {
	t.Helper()
	if to := targetAddress(t, moved); m.subnet.Contains(to) {
		t.Errorf("the migration went to %s before virt-handler was on the network", to)
	}
	if passed := m.passed(t); passed > 1<<20 {
		t.Errorf("%d bytes went over a network that no virt-handler is on", passed)
	}
	eventually(t, "why another network is used", hasEvent("", moved.Status.NodeName, "migrationnetworkmissing"))
}

// used checks that a migration used the network, whose byte count was before.
func (m *migrationNetwork) used(t *testing.T, moved *v1.VirtualMachineInstance, before uint64) {
	t.Helper()
	if to := targetAddress(t, moved); !m.subnet.Contains(to) {
		t.Errorf("the migration went to %s, want an address of %s", to, m.subnet)
	}
	if passed := m.passed(t) - before; passed < 8<<20 {
		t.Errorf("%d bytes went over the network of migrations, want the guest's memory", passed)
	}
}
