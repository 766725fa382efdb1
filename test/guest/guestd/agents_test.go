package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func ports(t *testing.T, names map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for port, name := range names {
		namePort(t, folder, port, name)
	}
	return folder
}

func namePort(t *testing.T, folder, port, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(folder, port), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, port, "name"), []byte(name+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

type counter struct {
	mu      sync.Mutex
	started map[string]int
	running atomic.Int32
	both    atomic.Bool // two ran on one port
}

func (c *counter) run(ctx context.Context, port string) {
	c.mu.Lock()
	c.started[port]++
	c.mu.Unlock()
	if c.running.Add(1) > 1 {
		c.both.Store(true)
	}
	<-ctx.Done()
	c.running.Add(-1)
}

func (c *counter) starts(port string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[port]
}

func newCounted(folder string) (hotplug, *counter) {
	c := &counter{started: map[string]int{}}
	return hotplug{agents: &agents{folder: folder, run: c.run}}, c
}

func portEvent(action, port string) uevent {
	return uevent{action: action, subsystem: "virtio-ports", devpath: "/devices/pci0/virtio2/virtio-ports/" + port}
}

func TestAPortGetsOneAgentHoweverOftenItIsFound(t *testing.T) {
	const port = "vport2p1"
	scan := func(ctx context.Context, h hotplug) { h.agents.scan(ctx) }
	event := func(action string) func(context.Context, hotplug) {
		return func(ctx context.Context, h hotplug) { h.handle(ctx, portEvent(action, port)) }
	}
	for name, steps := range map[string][]func(context.Context, hotplug){
		"the scan before the event": {scan, event("add")},
		"the event before the scan": {event("add"), scan},
		"the event alone":           {event("add")},
		"the scan alone":            {scan},
		"both, again and again":     {scan, event("add"), event("change"), scan, event("add"), scan},
		"other events first":        {event("bind"), event("change"), event("add"), scan},
	} {
		t.Run(name, func(t *testing.T) {
			folder := ports(t, map[string]string{port: agentPort})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				h, c := newCounted(folder)
				for _, step := range steps {
					step(ctx, h)
				}
				synctest.Wait()
				if got := c.starts(port); got != 1 {
					t.Errorf("the agent was started %d times, want once", got)
				}
				cancel()
				synctest.Wait()
				if left := c.running.Load(); left != 0 {
					t.Errorf("%d agents run when the guest goes down", left)
				}
			})
		})
	}
}

func TestAPortThatManyFindAtOnceGetsOneAgent(t *testing.T) {
	const port = "vport2p1"
	folder := ports(t, map[string]string{port: agentPort})
	synctest.Test(t, func(t *testing.T) {
		h, c := newCounted(folder)
		var finders sync.WaitGroup
		for i := range 32 {
			finders.Go(func() {
				if i%2 == 0 {
					h.agents.scan(t.Context())
				} else {
					h.handle(t.Context(), portEvent("add", port))
				}
			})
		}
		finders.Wait()
		synctest.Wait()
		if got := c.starts(port); got != 1 {
			t.Errorf("the agent was started %d times, want once", got)
		}
		h.agents.remove(port)
	})
}

func TestAnAgentEndsWithItsPortAndTheNextPortGetsANewOne(t *testing.T) {
	const port = "vport2p1"
	folder := ports(t, map[string]string{port: agentPort})
	synctest.Test(t, func(t *testing.T) {
		h, c := newCounted(folder)
		for i := range 5 {
			h.handle(t.Context(), portEvent("add", port))
			synctest.Wait()
			if started, running := c.starts(port), c.running.Load(); started != i+1 || running != 1 {
				t.Fatalf("port %d: %d agents were started and %d run, want %d and 1", i, started, running, i+1)
			}
			h.handle(t.Context(), portEvent("remove", port))
			if running := c.running.Load(); running != 0 {
				t.Fatalf("port %d: %d agents run after it was unplugged", i, running)
			}
			h.handle(t.Context(), portEvent("remove", port)) // the kernel may repeat its event
		}
		if c.both.Load() {
			t.Error("two agents ran on one port at the same time")
		}
	})
}

func TestOnlyTheAgentsPortGetsAnAgent(t *testing.T) {
	folder := ports(t, map[string]string{"vport2p1": "org.example.other"})
	synctest.Test(t, func(t *testing.T) {
		h, c := newCounted(folder)
		h.agents.scan(t.Context())
		h.handle(t.Context(), portEvent("add", "vport2p1"))
		h.handle(t.Context(), portEvent("add", "vport2p9")) // gone before guestd reads it
		// A new port has no name; the kernel sends an event when it gets one.
		h.handle(t.Context(), portEvent("add", "vport2p2"))
		synctest.Wait()
		if running := c.running.Load(); running != 0 {
			t.Fatalf("%d agents run on ports that are not the agent's", running)
		}
		namePort(t, folder, "vport2p2", agentPort)
		h.handle(t.Context(), portEvent("change", "vport2p2"))
		synctest.Wait()
		if got := c.starts("vport2p2"); got != 1 {
			t.Errorf("the port that got the agent's name has %d agents, want one", got)
		}
		h.agents.remove("vport2p2")
	})
}

func TestWithoutPortsThereIsNoAgent(t *testing.T) {
	h, c := newCounted(filepath.Join(t.TempDir(), "none"))
	h.agents.scan(t.Context())
	if len(c.started) != 0 {
		t.Errorf("agents were started: %v", c.started)
	}
}
