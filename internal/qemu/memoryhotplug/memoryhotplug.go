// Package memoryhotplug asks QEMU for the memory of a virtio-mem device, and sets it. It decides nothing.
package memoryhotplug

import (
	"context"
	"fmt"
)

// Monitor is QEMU's monitor.
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// Sizes are a device's sizes in bytes: the guest should take Requested, and has taken Size; Most is the largest possible.
type Sizes struct{ Requested, Size, Most int64 }

// Ask returns a device's sizes, at most most, or nil without the device.
func Ask(ctx context.Context, m Monitor, device string, most int64) (*Sizes, error) {
	var list []struct {
		Type string `json:"type"`
		Data struct {
			ID        string `json:"id"`
			Requested int64  `json:"requested-size"`
			Size      int64  `json:"size"`
			Most      int64  `json:"max-size"`
		} `json:"data"`
	}
	if err := m.Execute(ctx, "query-memory-devices", nil, &list); err != nil {
		return nil, fmt.Errorf("asking what memory the guest has: %w", err)
	}
	for i := range list {
		if d := &list[i].Data; list[i].Type == "virtio-mem" && d.ID == device {
			sizes := &Sizes{Requested: d.Requested, Size: d.Size, Most: d.Most}
			return sizes, sizes.check(most)
		}
	}
	return nil, nil
}

// check rejects impossible figures, since the guest may have taken QEMU over.
func (s *Sizes) check(most int64) error {
	if s.Requested < 0 || s.Size < 0 || max(s.Requested, s.Size) > s.Most || s.Most > most {
		return fmt.Errorf("asking what memory the guest has: QEMU says %d of %d, of %d that there can be", s.Size, s.Requested, s.Most)
	}
	return nil
}

// Set requests a size. The guest takes or releases memory in its own time.
func Set(ctx context.Context, m Monitor, device string, size int64) error {
	args := map[string]any{"path": "/machine/peripheral/" + device, "property": "requested-size", "value": size}
	if err := m.Execute(ctx, "qom-set", args, nil); err != nil {
		return fmt.Errorf("giving the guest %d bytes of memory: %w", size, err)
	}
	return nil
}
