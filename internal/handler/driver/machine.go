package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// vmis is what the errors of this file are about.
var vmis = schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "virtualmachineinstances"}

// Machine is a guest that runs, for those who serve its verbs and streams
// (server.Machine).
type Machine struct {
	d     *Driver
	guest *guest
	vmi   *v1.VirtualMachineInstance
	// address is where the guest's ports are reached, empty without a network.
	address string
	// taps are the tap devices in the pod, by interface.
	taps map[string]string
}

// machine gives the guest that runs.
func (d *Driver) machine() (*Machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.vmi == nil || !d.attached() || d.prepared == nil {
		return nil, errors.New("VMI is not running")
	}
	m := &Machine{d: d, guest: d.guest, vmi: d.vmi, taps: map[string]string{}}
	for _, i := range d.prepared.interfaces {
		m.taps[i.Name] = i.Tap
		if m.address == "" && len(i.IPs) > 0 {
			m.address = i.IPs[0]
		}
	}
	return m, nil
}

func (m *Machine) conflict(message string) error {
	return apierrors.NewConflict(vmis, m.vmi.Name, errors.New(message))
}

func (m *Machine) execute(ctx context.Context, command string, args any) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return m.guest.monitor.Execute(ctx, command, args, nil)
}

// ConsoleKey names the guest by its VMI, which has one life.
func (m *Machine) ConsoleKey() string { return string(m.vmi.UID) }

// DialSerial connects to the first serial console.
func (m *Machine) DialSerial(ctx context.Context) (net.Conn, error) {
	if attach := m.vmi.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No serial consoles are present.")
	}
	return m.dial(ctx, layout.SerialSocket)
}

// DialVNC connects to the screen.
func (m *Machine) DialVNC(ctx context.Context) (net.Conn, error) {
	if attach := m.vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return nil, apierrors.NewBadRequest("No graphics devices are present.")
	}
	return m.dial(ctx, layout.VNCSocket)
}

func (m *Machine) dial(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := m.guest.private.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialPort connects to a port of the guest.
func (m *Machine) DialPort(ctx context.Context, protocol string, port int) (net.Conn, error) {
	if m.address == "" {
		return nil, m.conflict("VMI has no network address")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, protocol, net.JoinHostPort(m.address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return conn, nil
}
