package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// grow starts the growth of disks whose claims have grown, and returns when to retry a failure, 0 for never.
func (v *Volumes) grow(ctx context.Context, m diskhotplug.Monitor, view View) (after time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	due, after := decideGrowth(view, &v.growing, v.env.Now())
	for _, grown := range due {
		v.growing.busy[grown.volume] = true
		v.env.Go(func() { v.growOne(ctx, m, view.VMI, grown) })
	}
	return after
}

// growOne grows one disk, off the owner's goroutine since it waits for storage.
func (v *Volumes) growOne(ctx context.Context, m diskhotplug.Monitor, instance *v1.VirtualMachineInstance, grown growth) {
	size, err := v.resize(ctx, m, grown)
	v.mu.Lock()
	v.growing.recordResult(grown, size, err, v.env.Now())
	v.mu.Unlock()
	if err == nil {
		v.worker.HandleEvent("BLOCK_RESIZED", "")
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		v.env.Log.Info("a disk could not be made to grow", "volume", grown.volume, "reason", err.Error())
		v.env.Cluster.Event(instance, corev1.EventTypeWarning, "FailedResize", fmt.Sprintf("disk of volume %s: %v", grown.volume, err))
	case size > grown.have:
		v.env.Cluster.Event(instance, corev1.EventTypeNormal, "VolumeResized",
			fmt.Sprintf("The disk of volume %s has grown from %d to %d bytes.", grown.volume, grown.have, size))
	}
	v.env.Wake()
}

func (v *Volumes) resize(ctx context.Context, m diskhotplug.Monitor, grown growth) (int64, error) {
	volume, err := v.open(ctx, grown.pod, grown.claim)
	if err != nil {
		return 0, err
	}
	defer volume.Close()
	size, err := nodehotplug.SizeFor(volume, grown.capacity)
	if err != nil || size <= grown.have {
		return grown.have, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return size, diskhotplug.Resize(ctx, m, machine.NodeName(grown.volume), size)
}
