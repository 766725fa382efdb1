// Package runningguest answers virt-api's requests about a guest on the node: power verbs, holds, consoles, ports, the
// guest agent's answers, and usage.
//
// It owns the errors for virt-api: a refusal is a conflict. It must not change the guest itself: the driver acts on the
// requests, and virt-launcher on the holds. The package keeps nothing between two requests.
package runningguest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guestusage"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/launcherclient"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/requests"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Resource is the resource of the VMIs that errors name.
var Resource = schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "virtualmachineinstances"}

// Network connects to ports of guests.
type Network interface {
	// Dial connects to a port of a guest in the pod's network namespace.
	Dial(ctx context.Context, namespace *os.File, to network.Interface, protocol string, port int) (net.Conn, error)
}

// Guest is a running guest (server.Machine), as it was when it was looked up.
type Guest struct {
	VMI        *v1.VirtualMachineInstance
	QEMU       *guest.Guest
	Agent      *guestagent.Agent
	Meter      *guestusage.Meter
	Link       *connection.Link
	Requests   *requests.Requests
	Network    Network
	Interfaces []network.Interface // that virt-handler has connected
}

func (g *Guest) conflict(message string) error {
	return apierrors.NewConflict(Resource, g.VMI.Name, errors.New(message))
}

// apiError makes a refusal a conflict.
func (g *Guest) apiError(err error) error {
	var refusal *power.Refusal
	var busy *launcherclient.Refusal
	switch {
	case errors.As(err, &refusal):
		return g.conflict(refusal.Message)
	case errors.As(err, &busy):
		return g.conflict(busy.Message)
	case errors.Is(err, guestagent.ErrNotConnected):
		return g.conflict(err.Error())
	}
	return err
}

// Quiesce makes virt-launcher hold the guest still, by the guest agent if it is connected. Holds are virt-launcher's, so
// that a guest is released even while the driver is busy.
func (g *Guest) Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error) {
	q.Agent = g.Agent.Observe().Connected
	if q.AgentOnly && !q.Agent {
		return launch.Hold{}, g.apiError(guestagent.ErrNotConnected)
	}
	hold, err := g.Link.Quiesce(ctx, q)
	var failed *launcherclient.NotHeld
	if errors.As(err, &failed) {
		return hold, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: nodeapi.NotHeld, Message: err.Error(),
		}}
	}
	return hold, g.apiError(err)
}

// Held returns the current or the last hold.
func (g *Guest) Held(ctx context.Context, asked launch.Held) (launch.Hold, error) {
	hold, err := g.Link.Held(ctx, asked)
	return hold, g.apiError(err)
}

// Release ends a hold.
func (g *Guest) Release(ctx context.Context, r launch.Release) (launch.Hold, error) {
	hold, err := g.Link.Release(ctx, r)
	return hold, g.apiError(err)
}

// Pause stops the guest's CPUs.
func (g *Guest) Pause(ctx context.Context) error { return g.ask(ctx, power.Pause) }

// Unpause resumes a paused guest if it can continue.
func (g *Guest) Unpause(ctx context.Context) error { return g.ask(ctx, power.Unpause) }

// Reset presses the reset button.
func (g *Guest) Reset(ctx context.Context) error { return g.ask(ctx, power.Reset) }

// SoftReboot reboots the guest by its agent or, without one, by Ctrl-Alt-Del.
func (g *Guest) SoftReboot(ctx context.Context) error { return g.ask(ctx, power.Reboot) }

func (g *Guest) ask(ctx context.Context, r power.Request) error {
	return g.apiError(g.Requests.Ask(ctx, r))
}

// UserList returns the logged-in users.
func (g *Guest) UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	list, err := g.Agent.UserList(ctx)
	return list, g.apiError(err)
}

// FilesystemList returns the mounted file systems.
func (g *Guest) FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	list, err := g.Agent.FilesystemList(ctx)
	return list, g.apiError(err)
}

// GuestOSInfo returns everything that the guest agent reports.
func (g *Guest) GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	info, err := g.Agent.GuestOSInfo(ctx)
	return info, g.apiError(err)
}

// ConsoleKey returns the VMI's UID.
func (g *Guest) ConsoleKey() string { return string(g.VMI.UID) }

// The name is empty if no interface is dialed.
func reachedInterface(interfaces []network.Interface) network.Interface {
	if i := slices.IndexFunc(interfaces, network.Interface.Reached); i >= 0 {
		return interfaces[i]
	}
	return network.Interface{}
}

// DialSerial connects to the first serial console.
func (g *Guest) DialSerial(ctx context.Context) (net.Conn, error) {
	if attach := g.VMI.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No serial consoles are present.")
	}
	return g.dial(ctx, layout.SerialSocket)
}

// DialVNC connects to the VNC server.
func (g *Guest) DialVNC(ctx context.Context) (net.Conn, error) {
	if attach := g.VMI.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No graphics devices are present.")
	}
	return g.dial(ctx, layout.VNCSocket)
}

func (g *Guest) dial(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := g.Link.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialPort connects to a port of the guest.
func (g *Guest) DialPort(ctx context.Context, protocol string, port int) (net.Conn, error) {
	reached := reachedInterface(g.Interfaces)
	if reached.Name == "" {
		return nil, g.conflict("VMI has no address on the pods' network, and ports of no other are forwarded")
	}
	conn, err := g.Network.Dial(ctx, g.Link.Peer.NetNS, reached, protocol, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return conn, nil
}

// Usage measures the guest.
func (g *Guest) Usage(ctx context.Context, now time.Time) metrics.Usage {
	taps := map[string]string{}
	for _, i := range g.Interfaces {
		taps[i.Name] = i.Tap
	}
	u := g.Meter.Measure(ctx, guestusage.Subject{QEMU: g.QEMU, Spec: &g.VMI.Spec, Taps: taps, Now: now})
	if m := g.QEMU.Observe().Migration; m.UnderWay() {
		u.Migration = &metrics.Migration{
			Total: m.Progress.Total, Processed: m.Progress.Transferred, Remaining: m.Progress.Remaining,
			DirtyRate: m.Progress.DirtyRate, TransferRate: m.Progress.Rate,
			ExpectedDowntime: m.Progress.Expected.Seconds(),
		}
	}
	g.addAgent(&u)
	u.Namespace, u.Name = g.VMI.Namespace, g.VMI.Name
	return u
}

func (g *Guest) addAgent(u *metrics.Usage) {
	f := g.Agent.Figures(g.QEMU.Measurable())
	if f.Load != nil {
		u.Guest[metrics.Load1], u.Guest[metrics.Load5] = metrics.Known(f.Load.Minute), metrics.Known(f.Load.FiveMinutes)
		u.Guest[metrics.Load15] = metrics.Known(f.Load.FifteenMinutes)
	}
	for _, l := range f.Filesystems {
		u.Filesystems = append(u.Filesystems, metrics.Filesystem{
			Disk: l.Name, MountPoint: l.Mountpoint, Type: l.Type,
			Capacity: metrics.Known(float64(l.TotalBytes)), Used: metrics.Known(float64(l.UsedBytes)),
		})
	}
}
