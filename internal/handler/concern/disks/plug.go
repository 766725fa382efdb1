package disks

import (
	"context"
	"maps"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

func (c *Concern) apply(ctx context.Context, m concern.Monitor, in machine.Input, d *nodehotplug.Decision) error {
	switch d.Action {
	case nodehotplug.Open, nodehotplug.Verify:
		c.openInBackground(ctx, *d, machine.ReadOnly(&in.VMI.Spec, d.Volume))
		return nil
	case nodehotplug.Drop:
		c.closeOpened(d.Volume)
		return nil
	}
	defer c.invalidate()
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	switch d.Action {
	case nodehotplug.Plug:
		return c.plug(ctx, m, in, d)
	case nodehotplug.Ask, nodehotplug.Eject:
		return diskhotplug.Ask(ctx, m, c.noteRequest(d.Volume))
	case nodehotplug.Force:
		return diskhotplug.Force(ctx, m, c.disk(d.Volume), machine.DetachedNode(d.Volume))
	case nodehotplug.Clear:
		return diskhotplug.Clear(ctx, m, c.disk(d.Volume))
	}
	return nil
}

func (c *Concern) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.inquiry.Invalidate()
}

func (c *Concern) disk(volume string) diskhotplug.Disk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.disks[volume]
}

func (c *Concern) noteRequest(volume string) diskhotplug.Disk {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.asked[volume] = true
	return c.state.disks[volume]
}

// Storage may block, and other volumes must not wait for it.
func (c *Concern) openInBackground(ctx context.Context, d nodehotplug.Decision, readOnly bool) {
	c.mu.Lock()
	c.state.opening[d.Volume] = true
	c.mu.Unlock()
	c.env.Go(func() {
		opened, err := c.openDisk(ctx, &d, readOnly)
		c.mu.Lock()
		delete(c.state.opening, d.Volume)
		switch {
		case err != nil:
			c.failed[d.Volume] = err
		case d.Action == nodehotplug.Verify:
			c.state.verified[d.Volume] = d.Source.UID
			opened.File.Close()
		case c.closed:
			opened.File.Close()
		default:
			c.files[d.Volume], c.state.opened[d.Volume] = openedDisk{pod: d.Source.UID, disk: opened}, d.Source.UID
		}
		c.mu.Unlock()
		c.env.Wake()
	})
}

func (c *Concern) openDisk(ctx context.Context, d *nodehotplug.Decision, readOnly bool) (*nodehotplug.Opened, error) {
	volume, err := c.env.Volume(ctx, d.Source.UID, d.Claim)
	if err != nil {
		return nil, err
	}
	defer volume.Close()
	return nodehotplug.OpenDisk(ctx, volume, nodehotplug.Request{
		Volume: d.Volume, Claim: d.Claim, ReadOnly: readOnly || d.Action == nodehotplug.Verify, Size: d.Size, Capacity: c.env.Capacity,
		Tolerated: c.env.Tolerated(),
	})
}

func (c *Concern) closeOpened(volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.files[volume]; ok {
		f.disk.File.Close()
		delete(c.files, volume)
		delete(c.state.opened, volume)
	}
}

func (c *Concern) plug(ctx context.Context, m concern.Monitor, in machine.Input, d *nodehotplug.Decision) error {
	c.mu.Lock()
	disk := c.files[d.Volume].disk
	var taken []machine.Slot
	for _, other := range c.state.disks {
		if other.Bus != "" {
			taken = append(taken, machine.Slot{Bus: v1.DiskBus(other.Bus), Number: other.Number})
		}
	}
	delete(c.state.refused, machine.DiskID(d.Volume))
	c.mu.Unlock()
	tag := diskhotplug.Tag{Volume: d.Volume, Claim: d.Claim, Device: machine.DiskID(d.Volume), Drive: machine.IsDrive(&in.VMI.Spec, d.Volume)}
	var slot machine.Slot
	switch {
	case tag.Drive:
	case d.Place != nil:
		slot = *d.Place
		tag.Bus, tag.Number = string(slot.Bus), slot.Number
	default:
		var err error
		if slot, err = machine.FreeSlot(&in.VMI.Spec, d.Volume, taken); err != nil {
			return err
		}
		tag.Bus, tag.Number = string(slot.Bus), slot.Number
	}
	tag.Nodes = machine.PlugNodes(d.Volume)
	err := diskhotplug.Plug(ctx, m, tag, disk.File, func(path string) (diskhotplug.Parts, error) {
		image := disk.Image
		image.Source = path
		in.Images = maps.Clone(in.Images)
		in.Images[d.Volume] = image
		plug, err := machine.BuildPlug(in, d.Volume, slot)
		if err != nil {
			return diskhotplug.Parts{}, err
		}
		parts := diskhotplug.Parts{Device: plug.Device}
		for _, b := range plug.Blockdevs {
			parts.Blockdevs = append(parts.Blockdevs, b)
		}
		return parts, nil
	})
	if err != nil {
		return err
	}
	// QEMU has its own descriptor now. The status names the pod in which the disk was opened.
	c.closeOpened(d.Volume)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.disks[d.Volume] = diskhotplug.Disk{Tag: tag, Stage: diskhotplug.Plugged, Size: disk.Image.VirtualSize}
	return nil
}
