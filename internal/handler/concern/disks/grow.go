package disks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// It waits for storage on another goroutine.
func (c *Concern) grow(ctx context.Context, m concern.Monitor, vmi *v1.VirtualMachineInstance, of growth) {
	c.mu.Lock()
	c.state.growing.busy[of.volume] = true
	c.mu.Unlock()
	c.env.Go(func() {
		size, err := c.resize(ctx, m, of)
		now := c.env.Now()
		c.mu.Lock()
		c.state.growing.recordResult(of, size, err, now)
		if err == nil {
			c.state.inquiry.Invalidate() // QEMU reports the size of a plugged disk
		}
		c.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.log.Info("a disk could not be made to grow", "volume", of.volume, "reason", err.Error())
			c.env.Event(vmi, corev1.EventTypeWarning, "FailedResize", fmt.Sprintf("disk of volume %s: %v", of.volume, err))
		case size > of.have:
			c.env.Event(vmi, corev1.EventTypeNormal, "VolumeResized",
				fmt.Sprintf("The disk of volume %s has grown from %d to %d bytes.", of.volume, of.have, size))
		}
		c.env.Wake()
	})
}

func (c *Concern) resize(ctx context.Context, m concern.Monitor, of growth) (int64, error) {
	volume, err := c.env.Volume(ctx, of.pod, of.claim)
	if err != nil {
		return 0, err
	}
	defer volume.Close()
	size, err := nodehotplug.SizeFor(volume, of.capacity)
	if err != nil || size <= of.have {
		return of.have, err
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	return size, diskhotplug.Resize(ctx, m, machine.NodeName(of.volume), size)
}
