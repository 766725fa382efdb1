package nics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

// netdev is nil if the interface has no backend. plug replaces the remains of an earlier attempt.
func (c *Concern) plug(ctx context.Context, m concern.Monitor, name string, netdev, device machine.Properties) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if netdev != nil {
		if err := addNetdev(ctx, m, name, netdev); err != nil {
			return fmt.Errorf("having QEMU open the network of interface %s: %w", name, err)
		}
	}
	if err := m.Execute(ctx, "device_add", device, nil); err != nil {
		if netdev != nil {
			err = errors.Join(err, deleteNetdev(ctx, m, name))
		}
		return fmt.Errorf("plugging interface %s: %w", name, err)
	}
	c.log.Info("plugged an interface", "interface", name)
	c.update(func(s Seen) Seen {
		s.plugged, s.gone = with(s.plugged, name, c.env.Now()), without(s.gone, name)
		return s
	})
	return c.QueryNICs(ctx, concern.QueryOf(m))
}

// addNetdev replaces a backend from an earlier attempt.
func addNetdev(ctx context.Context, m concern.Monitor, name string, netdev machine.Properties) error {
	err := m.Execute(ctx, "netdev_add", netdev, nil)
	var refusal *qmp.Error
	if !errors.As(err, &refusal) || !strings.Contains(strings.ToLower(refusal.Desc), "duplicate id") {
		return err
	}
	if err := deleteNetdev(ctx, m, name); err != nil {
		return err
	}
	return m.Execute(ctx, "netdev_add", netdev, nil)
}

func deleteNetdev(ctx context.Context, m concern.Monitor, name string) error {
	return m.Execute(ctx, "netdev_del", map[string]any{"id": machine.NetdevID(name)}, nil)
}

// unplug may be repeated. QEMU sends an event when the guest has released the interface.
func (c *Concern) unplug(ctx context.Context, m concern.Monitor, name string) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	err := m.Execute(ctx, "device_del", map[string]any{"id": machine.NICID(name)}, nil)
	var refusal *qmp.Error
	switch {
	case isDeviceNotFound(err):
		return c.QueryNICs(ctx, concern.QueryOf(m))
	case errors.As(err, &refusal) && strings.Contains(refusal.Desc, "already in the process of unplug"):
		// The guest has not answered the earlier request yet.
	case err != nil:
		return fmt.Errorf("unplugging interface %s: %w", name, err)
	}
	c.update(func(s Seen) Seen {
		now := c.env.Now()
		s.asked = with(s.asked, name, now)
		if _, before := s.since[name]; !before {
			s.since = with(s.since, name, now)
		}
		return s
	})
	return nil
}

// clear removes the backend of an interface that the guest has released. It may be repeated.
func (c *Concern) clear(ctx context.Context, m concern.Monitor, name string) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	if err := deleteNetdev(ctx, m, name); err != nil && !isDeviceNotFound(err) {
		return fmt.Errorf("having QEMU close the network of interface %s: %w", name, err)
	}
	c.update(func(s Seen) Seen {
		s.gone = without(s.gone, name)
		return s
	})
	return nil
}

func isDeviceNotFound(err error) bool {
	var refusal *qmp.Error
	return errors.As(err, &refusal) && refusal.Class == "DeviceNotFound"
}
