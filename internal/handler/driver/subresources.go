package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/launcherclient"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

var vmis = schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "virtualmachineinstances"}

// Machine is a running guest (server.Machine).
type Machine struct {
	*attached
	vmi *v1.VirtualMachineInstance
	// network dials the guest's ports through reachedInterface.
	network          Network
	reachedInterface network.Interface
	taps             map[string]string
}

func (d *Driver) machine() (*Machine, error) {
	instance, a := d.presence.VMI(), d.attached.Load()
	if instance == nil || a == nil || !a.guest.Alive() {
		return nil, d.notRunning()
	}
	if vmihandler.RoleOf(instance, d.env.Node) != vmihandler.Home {
		return nil, fmt.Errorf("the guest is coming to node %s or has left it by a migration; try again", d.env.Node)
	}
	interfaces := a.nics.Connected()
	m := &Machine{attached: a, vmi: instance, network: d.env.Network, reachedInterface: reachedInterface(interfaces), taps: map[string]string{}}
	for _, i := range interfaces {
		m.taps[i.Name] = i.Tap
	}
	return m, nil
}

func (d *Driver) notRunning() error {
	return fmt.Errorf("the guest does not run on node %s, or virt-handler there has not connected to it yet; try again", d.env.Node)
}

func (m *Machine) conflict(message string) error {
	return apierrors.NewConflict(vmis, m.vmi.Name, errors.New(message))
}

// apiError makes a refusal a conflict, for virt-api.
func (m *Machine) apiError(err error) error {
	var refusal *power.Refusal
	var busy *launcherclient.Refusal
	switch {
	case errors.As(err, &refusal):
		return m.conflict(refusal.Message)
	case errors.As(err, &busy):
		return m.conflict(busy.Message)
	case errors.Is(err, guestagent.ErrNotConnected):
		return m.conflict(err.Error())
	}
	return err
}

// Quiesce makes virt-launcher hold the guest still, by the guest agent if it is connected. virt-launcher alone acts on
// holds: a guest is released even while the driver is busy.
func (m *Machine) Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error) {
	q.Agent = m.agent.Observe().Connected
	if q.AgentOnly && !q.Agent {
		return launch.Hold{}, m.apiError(guestagent.ErrNotConnected)
	}
	hold, err := m.link.Quiesce(ctx, q)
	var failed *launcherclient.NotHeld
	if errors.As(err, &failed) {
		return hold, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: nodeapi.NotHeld, Message: err.Error(),
		}}
	}
	return hold, m.apiError(err)
}

// Held returns the hold that keeps the guest still, or the last one.
func (m *Machine) Held(ctx context.Context, asked launch.Held) (launch.Hold, error) {
	hold, err := m.link.Held(ctx, asked)
	return hold, m.apiError(err)
}

// Release ends a hold.
func (m *Machine) Release(ctx context.Context, r launch.Release) (launch.Hold, error) {
	hold, err := m.link.Release(ctx, r)
	return hold, m.apiError(err)
}

// Pause stops the guest's CPUs.
func (m *Machine) Pause(ctx context.Context) error { return m.ask(ctx, power.Pause) }

// Unpause resumes a paused guest if it can continue.
func (m *Machine) Unpause(ctx context.Context) error { return m.ask(ctx, power.Unpause) }

// Reset presses the reset button.
func (m *Machine) Reset(ctx context.Context) error { return m.ask(ctx, power.Reset) }

// SoftReboot reboots the guest by its agent or, without one, by Ctrl-Alt-Del.
func (m *Machine) SoftReboot(ctx context.Context) error { return m.ask(ctx, power.Reboot) }

func (m *Machine) ask(ctx context.Context, r power.Request) error {
	return m.apiError(m.requests.Ask(ctx, r))
}

// UserList returns the users who are logged in.
func (m *Machine) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	list, err := m.agent.UserList(ctx)
	return list, m.apiError(err)
}

// FilesystemList returns the mounted file systems.
func (m *Machine) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	list, err := m.agent.FilesystemList(ctx)
	return list, m.apiError(err)
}

// GuestOSInfo returns all that the guest agent has reported.
func (m *Machine) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	info, err := m.agent.GuestOSInfo(ctx)
	return info, m.apiError(err)
}

// ConsoleKey returns the VMI's UID.
func (m *Machine) ConsoleKey() string { return string(m.vmi.UID) }

// The name is empty if no interface is dialed.
func reachedInterface(interfaces []network.Interface) network.Interface {
	if i := slices.IndexFunc(interfaces, network.Interface.Reached); i >= 0 {
		return interfaces[i]
	}
	return network.Interface{}
}

// DialSerial connects to the first serial console.
func (m *Machine) DialSerial(ctx context.Context) (net.Conn, error) {
	if attach := m.vmi.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No serial consoles are present.")
	}
	return m.dial(ctx, layout.SerialSocket)
}

// DialVNC connects to the VNC server.
func (m *Machine) DialVNC(ctx context.Context) (net.Conn, error) {
	if attach := m.vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No graphics devices are present.")
	}
	return m.dial(ctx, layout.VNCSocket)
}

func (m *Machine) dial(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := m.link.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialPort connects to a port of the guest.
func (m *Machine) DialPort(ctx context.Context, protocol string, port int) (net.Conn, error) {
	if m.reachedInterface.Name == "" {
		return nil, m.conflict("VMI has no address on the pods' network, and ports of no other are forwarded")
	}
	conn, err := m.network.Dial(ctx, m.link.Peer.NetNS, m.reachedInterface, protocol, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return conn, nil
}

func (m *Machine) usage(ctx context.Context) metrics.Usage {
	u := m.guest.Usage(ctx, m.vmi.Spec.Domain.Devices.Disks, m.taps)
	if m := m.guest.Observe().Migration; m.UnderWay() {
		u.Migration = &metrics.Migration{
			Total: m.Progress.Total, Processed: m.Progress.Transferred, Remaining: m.Progress.Remaining,
			DirtyRate: m.Progress.DirtyRate, TransferRate: m.Progress.Rate,
			ExpectedDowntime: m.Progress.Expected.Seconds(),
		}
	}
	u.Namespace, u.Name, u.GuestBytes = m.vmi.Namespace, m.vmi.Name, float64(machine.GuestMemory(&m.vmi.Spec))
	return u
}

// Usage measures all running guests concurrently.
func (s *Supervisor) Usage(ctx context.Context) []metrics.Usage {
	s.mu.Lock()
	var running []*Machine
	for _, d := range s.drivers {
		if m, err := d.machine(); err == nil {
			running = append(running, m)
		}
	}
	s.mu.Unlock()
	usages := make([]metrics.Usage, len(running))
	var asking sync.WaitGroup
	for i, m := range running {
		asking.Go(func() { usages[i] = m.usage(ctx) })
	}
	asking.Wait()
	return usages
}
