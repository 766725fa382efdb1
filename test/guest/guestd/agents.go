package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	agentPort    = "org.qemu.guest_agent.0"
	portsFolder  = "/sys/class/virtio-ports"
	agentProgram = "/usr/sbin/qemu-ga"
)

// agents keeps one guest agent running on each agent port. The scan at boot and the kernel's events both name a port,
// in any order and more than once: the port is the key, so that only the first starts an agent. A second agent on a
// port could only fail, because the kernel lets one process open it.
type agents struct {
	folder string
	run    func(ctx context.Context, port string)

	mu    sync.Mutex
	ports map[string]agent
}

// agent serves one port; done is closed when it has ended.
type agent struct {
	cancel context.CancelFunc
	done   <-chan struct{}
}

func newAgents() *agents { return &agents{folder: portsFolder, run: superviseAgent} }

func superviseAgent(ctx context.Context, port string) {
	supervise(ctx, agentProgram, "-m", "virtio-serial", "-p", "/dev/"+port, "-t", "/run")
}

func (a *agents) scan(ctx context.Context) {
	ports, err := os.ReadDir(a.folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		say("listing the virtio ports: %v", err)
	}
	for _, port := range ports {
		a.add(ctx, port.Name())
	}
}

func (a *agents) add(ctx context.Context, port string) {
	name, err := os.ReadFile(filepath.Join(a.folder, port, "name"))
	if err != nil || strings.TrimSpace(string(name)) != agentPort {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.ports[port]; there {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	if a.ports == nil {
		a.ports = map[string]agent{}
	}
	a.ports[port] = agent{cancel, done}
	go func() {
		defer close(done)
		a.run(ctx, port)
	}()
}

// remove returns when the agent has ended: the next port of that name gets a new one.
func (a *agents) remove(port string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ending, there := a.ports[port]
	if !there {
		return
	}
	delete(a.ports, port)
	ending.cancel()
	<-ending.done
}
