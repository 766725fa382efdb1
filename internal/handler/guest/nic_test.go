package guest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/machine"
)

func netdevOf(name string) machine.Properties {
	return machine.Properties{"type": "tap", "id": machine.NetdevID(name), "ifname": "tap1"}
}

func deviceOf(name string) machine.Properties {
	return machine.Properties{"driver": "virtio-net-pci", "id": machine.NICID(name), "netdev": machine.NetdevID(name), "bus": qmptest.Port}
}

// plugged returns a QEMU with the plugged interface blue.
func plugged(t *testing.T) (*qmptest.Server, *watched) {
	t.Helper()
	qemu := qmptest.New(t)
	g := open(t, qemu)
	if got := g.Observe().NICs; len(got.Present) != 0 {
		t.Errorf("QEMU has %v", got.Present)
	}
	if err := g.PlugNIC(t.Context(), "blue", netdevOf("blue"), deviceOf("blue")); err != nil {
		t.Fatal(err)
	}
	return qemu, g
}

func TestAnInterfaceComes(t *testing.T) {
	qemu, g := plugged(t)
	nics := g.Observe().NICs
	if !nics.Present["blue"] || nics.Plugged["blue"].IsZero() {
		t.Errorf("it knows %+v", nics)
	}
	// The next virt-handler finds it.
	if next := open(t, qemu).Observe().NICs; !next.Present["blue"] || len(next.Gone) != 0 {
		t.Errorf("the next one knows %+v", next)
	}
}

func TestADeviceOfTheNodeComesAndGoes(t *testing.T) {
	qemu := qmptest.New(t)
	g := open(t, qemu)
	device := machine.Properties{"driver": "vfio-pci", "id": machine.NICID("blue"), "host": "0000:65:00.2", "bus": qmptest.Port}
	if err := g.PlugNIC(t.Context(), "blue", nil, device); err == nil || !strings.HasPrefix(err.Error(), "plugging interface blue: ") || !strings.Contains(err.Error(), "no such host device") {
		t.Errorf("one that the node lacks: %v", err)
	}
	if got := qemu.Executed("netdev_add") + qemu.Executed("netdev_del"); got != 0 {
		t.Errorf("it has %d commands for a backend", got)
	}
	qemu.HasHostDevice("0000:65:00.2")
	if err := g.PlugNIC(t.Context(), "blue", nil, device); err != nil {
		t.Fatal(err)
	}
	if !g.Observe().NICs.Present["blue"] || qemu.Executed("netdev_add") != 0 {
		t.Errorf("it knows %+v", g.Observe().NICs)
	}
	if err := g.UnplugNIC(t.Context(), "blue"); err != nil {
		t.Fatal(err)
	}
	qemu.Release(machine.NICID("blue"))
	g.await("the interface to be gone", func(f Facts) bool { return f.NICs.Gone["blue"] })
	if err := g.ClearNIC(t.Context(), "blue"); err != nil || len(g.Observe().NICs.Gone) != 0 {
		t.Errorf("something is left of it: %v", err)
	}
}

func TestAnInterfaceGoes(t *testing.T) {
	qemu, g := plugged(t)
	first := g.clock.Now()
	for range 2 {
		if err := g.UnplugNIC(t.Context(), "blue"); err != nil {
			t.Fatal(err)
		}
		g.clock.pass(time.Second)
	}
	if nics := g.Observe().NICs; !nics.Present["blue"] || !nics.Since["blue"].Equal(first) || !nics.Asked["blue"].Equal(first.Add(time.Second)) {
		t.Errorf("it knows %+v", nics)
	}
	qemu.Release(machine.NICID("blue"))
	nics := g.await("the interface to be gone", func(f Facts) bool { return f.NICs.Gone["blue"] }).NICs
	if nics.Present["blue"] || len(nics.Asked) != 0 || len(nics.Since) != 0 {
		t.Errorf("it knows %+v", nics)
	}
	for range 2 {
		if err := g.ClearNIC(t.Context(), "blue"); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.Observe().NICs.Gone; len(got) != 0 || slices.Contains(qemu.Netdevs(), "host-blue") {
		t.Errorf("%v are gone, QEMU has %v", got, qemu.Netdevs())
	}
	if err := g.UnplugNIC(t.Context(), "blue"); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

// The remains of an earlier virt-handler's plug are replaced; a plug that fails leaves none.
func TestAPlugThatWasCutShort(t *testing.T) {
	qemu := qmptest.New(t)
	g := open(t, qemu)
	if err := g.execute(t.Context(), "netdev_add", netdevOf("blue")); err != nil {
		t.Fatal(err)
	}
	if err := g.PlugNIC(t.Context(), "blue", netdevOf("blue"), deviceOf("blue")); err != nil {
		t.Fatal(err)
	}
	lost := deviceOf("green")
	lost["netdev"] = "none"
	var refusal *qmp.Error
	if err := g.PlugNIC(t.Context(), "green", netdevOf("green"), lost); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "plugging interface green") {
		t.Errorf("a device that can't be: %v", err)
	}
	if slices.Contains(qemu.Netdevs(), "host-green") || g.Observe().NICs.Present["green"] {
		t.Errorf("QEMU has %v", qemu.Netdevs())
	}
}
