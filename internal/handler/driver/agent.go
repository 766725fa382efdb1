package driver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/guestinfo"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/qemu/agent"
)

// agentTimeout bounds one conversation with the guest agent, which may wait for
// another one (a probe's) to end first.
const agentTimeout = 10 * time.Second

// maxConversations bounds the conversations with guest agents that go on at a time
// on the node, and with them what hostile agents together can make virt-handler
// hold: some 3 MiB each. Agents that say nothing keep their places for agentTimeout,
// so there are more places than an honest node needs, whose agents answer in
// milliseconds.
const maxConversations = 16

// agentLooks are the waits before each time that a new agent is asked: it is
// often up before the guest's network is, and nothing announces that. Once
// every interface has its address, or after the last look, there is rest.
var agentLooks = []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 30 * time.Second}

// agentPause is the shortest time between the first questions to one agent and
// to the next: a guest whose agent comes and goes all the time, each time with
// another tale, must not become a stream of writes.
const agentPause = 10 * time.Second

// agentPatience is how long an agent may be gone before the status says so. A
// guest that shuts down or reboots loses its agent first, and its end, or the
// agent's return, makes two writes of it that report nothing new.
const agentPatience = 10 * time.Second

// followAgent starts and ends the goroutine that asks the agent, as the agent
// comes and goes. The caller holds d.mu.
func (d *Driver) followAgent(ctx context.Context, g *guest) {
	if g.agentOpen {
		if g.fading != nil {
			g.fading.Stop()
		}
		g.fading, g.faded = nil, false
		if g.forget == nil {
			ctx, g.forget = context.WithCancel(ctx)
			instance, pause := d.vmi, max(0, g.asked.Add(agentPause).Sub(d.env.Now()))
			d.helpers.Go(func() { d.learn(ctx, g, instance, pause) })
		}
		return
	}
	if g.forget != nil {
		g.forget()
		g.forget = nil
	}
	switch {
	case g.faded:
		g.told, g.fading, g.faded = nil, nil, false
	case g.told != nil && g.fading == nil:
		g.fading = time.AfterFunc(agentPatience, func() {
			d.mu.Lock()
			g.faded = !g.agentOpen
			d.mu.Unlock()
			d.poke()
		})
	}
}

// learn asks the agent until it has said all that the status wants to know.
func (d *Driver) learn(ctx context.Context, g *guest, instance *v1.VirtualMachineInstance, pause time.Duration) {
	for _, wait := range agentLooks {
		timer := time.NewTimer(pause + wait)
		pause = 0
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		d.mu.Lock()
		g.asked = d.env.Now()
		d.mu.Unlock()
		told, err := g.askAgent(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.log.V(1).Info("the guest agent did not answer", "reason", err.Error())
			continue
		}
		d.mu.Lock()
		if ctx.Err() == nil { // the agent has not gone meanwhile
			g.told = told
		}
		d.mu.Unlock()
		d.poke()
		if complete(told, instance) {
			return
		}
	}
}

// complete reports whether the agent has named an address for each of the VMI's
// interfaces.
func complete(told *vmi.Agent, instance *v1.VirtualMachineInstance) bool {
	addressed := 0
	for _, i := range told.Interfaces {
		if len(i.IPs) > 0 {
			addressed++
		}
	}
	return addressed >= len(instance.Spec.Domain.Devices.Interfaces)
}

func (g *guest) askAgent(ctx context.Context) (*vmi.Agent, error) {
	told := &vmi.Agent{}
	err := g.withAgent(ctx, func(ctx context.Context, a *agent.Client) error {
		system, err := a.OSInfo(ctx)
		if err != nil && !agent.Unsupported(err) {
			return err
		}
		told.OS = shortened(guestinfo.OS(system))
		interfaces, err := a.Interfaces(ctx)
		if err != nil && !agent.Unsupported(err) {
			return err
		}
		told.Interfaces = interfacesOf(interfaces)
		return nil
	})
	return told, err
}

// withAgent has a conversation with the agent. The connection lasts no longer
// than that: QEMU serves one at a time, and virt-launcher's probes want theirs.
func (g *guest) withAgent(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	select {
	case g.agents <- struct{}{}:
		defer func() { <-g.agents }()
	case <-ctx.Done():
		return apierrors.NewTooManyRequests("virt-handler is talking to as many guest agents as it may at a time; try again", 1)
	}
	conn, err := g.private.Dial(ctx, layout.AgentSocket)
	if err != nil {
		return fmt.Errorf("connecting to the guest agent: %w", err)
	}
	client := agent.New(conn)
	defer func() { _ = client.Close() }() // all answers are in, or given up
	return talk(ctx, client)
}

const (
	// maxReported bounds what a guest can put into its VMI's status.
	maxReported = 32
	maxIPs      = 16
	maxText     = 256
)

// interfacesOf lists the interfaces that can be reached from outside.
func interfacesOf(all []agent.Interface) []v1.VirtualMachineInstanceNetworkInterface {
	var list []v1.VirtualMachineInstanceNetworkInterface
	for _, i := range all {
		if i.Name == "lo" || i.HardwareAddr == "" || i.HardwareAddr == "00:00:00:00:00:00" || len(list) == maxReported {
			continue
		}
		status := v1.VirtualMachineInstanceNetworkInterface{InterfaceName: short(i.Name), MAC: short(strings.ToLower(i.HardwareAddr))}
		for _, a := range i.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && !ip.IsLinkLocalUnicast() && len(status.IPs) < maxIPs {
				status.IPs = append(status.IPs, ip.String())
			}
		}
		if len(status.IPs) > 0 {
			status.IP = status.IPs[0]
		}
		list = append(list, status)
	}
	return list
}

// shortened cuts what a guest says of its system to what a status should hold.
func shortened(i v1.VirtualMachineInstanceGuestOSInfo) v1.VirtualMachineInstanceGuestOSInfo {
	for _, text := range []*string{
		&i.Name, &i.KernelRelease, &i.Version, &i.PrettyName, &i.VersionID, &i.KernelVersion, &i.Machine, &i.ID,
	} {
		*text = short(*text)
	}
	return i
}

func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}
