package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/disks"
	"drydock.dev/drydock/internal/handler/concern/memory"
	"drydock.dev/drydock/internal/handler/concern/memorydump"
	"drydock.dev/drydock/internal/handler/concern/nics"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guestusage"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/migration/incoming"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/requests"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type attached struct {
	link     *connection.Link
	prepared *preparation.Prepared
	guest    *guest.Guest
	agent    *guestagent.Agent
	meter    *guestusage.Meter
	requests *requests.Requests
	// concerns includes memory, nics and disks; plugs has the results of disks.
	concerns concern.List
	memory   *memory.Concern
	nics     *nics.Concern
	disks    *disks.Concern
	dumps    *memorydump.Concern
	plugs    *concern.Running[disks.Seen, disks.Plan]
	// panicked gets QEMU's events about panics.
	panicked func(qmp.Event)
}

// attach takes over a running QEMU, whoever started it.
func (d *Driver) attach(ctx context.Context, instance *v1.VirtualMachineInstance) error {
	if d.prepared == nil {
		p, err := d.pod.Prepare(ctx, instance, true)
		if err != nil {
			return err
		}
		d.prepared = p
	}
	a, err := d.open(ctx, instance)
	if err != nil {
		return err
	}
	if m := a.guest.Observe().Migration; m.Arriving() {
		if err := incoming.Export(ctx, instance, a.guest); err != nil {
			a.close()
			return fmt.Errorf("attaching to a QEMU that waits for its guest: %w", err)
		}
	}
	d.detach()
	d.attached.Store(a)
	return nil
}

func (d *Driver) open(ctx context.Context, instance *v1.VirtualMachineInstance) (*attached, error) {
	link := d.link
	conn, err := link.Monitor(ctx)
	if err != nil {
		return nil, err
	}
	var credentials func() (accesscredential.Delivery, error)
	if root := link.Peer.Root; accesscredential.ByAgent(&instance.Spec) {
		credentials = func() (accesscredential.Delivery, error) {
			return accesscredential.ForAgent(&instance.Spec, func(source accesscredential.Source) ([]accesscredential.File, error) {
				return disk.CredentialFiles(root, source)
			})
		}
	}
	a := &attached{link: link, prepared: d.prepared, requests: requests.New(d.wake), meter: &d.meter}
	a.agent = guestagent.New(guestagent.Env{
		Dial: func(ctx context.Context) (net.Conn, error) { return link.Dial(ctx, layout.AgentSocket) }, Places: d.env.agents,
		ForFigures: d.env.agentsForFigures, Record: &d.record,
		Go: d.helpers.Go, Wake: d.wake, Credentials: credentials, Now: d.env.Now, Log: d.log,
	}, vmihandler.AgentOf(instance.Status))
	a.panicked = d.countPanic
	d.addConcerns(a)
	a.guest, err = guest.Open(ctx, conn, guest.Env{
		OnEvent: a.handleEvent, Wake: d.wake, Now: d.env.Now, Log: d.log,
	}, instance.Spec.Domain.Devices.Disks)
	if err != nil {
		return nil, err
	}
	monitor := a.guest.Monitor()
	if err := errors.Join(a.nics.QueryNICs(ctx, concern.QueryOf(monitor)), a.agent.QueryPort(ctx, monitor)); err != nil {
		a.guest.Close()
		return nil, err
	}
	return a, nil
}

func (a *attached) handleEvent(e qmp.Event) bool {
	if e.Name == panicEvent {
		a.panicked(e)
	}
	agent, changes := a.agent.HandleEvent(e), a.concerns.HandleEvent(e)
	return agent || changes
}

// detach keeps the state of the network for another connection to the same QEMU.
func (d *Driver) detach() {
	if a := d.attached.Swap(nil); a != nil {
		d.prepared = a.prepared.With(a.nics.Connected())
		a.close()
		a.requests.Close(errNotRunning(d.env.Node).Error())
	}
}

// qemu returns nil without a QEMU.
func (a *attached) qemu() *guest.Guest {
	if a == nil {
		return nil
	}
	return a.guest
}

// QEMU continues.
func (a *attached) close() {
	a.agent.Close()
	a.disks.Close()
	a.dumps.Close()
	a.guest.Close()
}

// errMonitorEnded mostly resolves itself: QEMU closes its monitor a moment before virt-launcher can report QEMU's end.
var errMonitorEnded = errors.New("the connection to QEMU's monitor has ended")

// monitorPause is that moment's length on a busy machine.
const monitorPause = 500 * time.Millisecond

// It also drops everything of an old link.
func (d *Driver) observeConnection() connection.Facts {
	facts := d.connection.Observe()
	if facts.Link != d.link {
		d.detach()
		d.linked.Store(facts.Link)
		d.link, d.pod, d.prepared = facts.Link, &preparation.Pod{Env: &d.preparation, Link: facts.Link}, nil
	}
	d.dropDeadGuest()
	if facts.State == vmihandler.LinkUp {
		d.failures.Clear(vmihandler.Connect)
	}
	if facts.Failure != nil {
		d.log.Info("a step failed", "step", vmihandler.Connect, "reason", facts.Failure.Error())
		d.failures.Record(vmihandler.Connect, facts.Failure, d.env.Now())
	}
	return facts
}

// It also delays the next attempt to attach.
func (d *Driver) dropDeadGuest() {
	if a := d.attached.Load(); a == nil || a.guest.Alive() {
		return
	}
	d.detach()
	d.failures.Postpone(vmihandler.Attach, errMonitorEnded, d.env.Now().Add(monitorPause))
}

// runningGuest returns the guest for virt-api's requests.
func (d *Driver) runningGuest() (*runningguest.Guest, error) {
	instance, a := d.presence.VMI(), d.attached.Load()
	if instance == nil || a == nil || !a.guest.Alive() {
		return nil, errNotRunning(d.env.Node)
	}
	if vmihandler.RoleOf(instance, d.env.Node) != vmihandler.Home {
		return nil, fmt.Errorf("the guest is coming to node %s or has left it by a migration; try again", d.env.Node)
	}
	return &runningguest.Guest{
		VMI: instance, QEMU: a.guest, Agent: a.agent, Meter: a.meter, Link: a.link, Requests: a.requests,
		Network: d.env.Network, Interfaces: a.nics.Connected(),
	}, nil
}

func errNotRunning(node string) error {
	return fmt.Errorf("the guest does not run on node %s, or virt-handler there has not connected to it yet; try again", node)
}
