package driver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/plug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// growPause is how long a disk is left alone that could not be made to grow: its
// claim says so before its device has, or its file system is full.
const growPause = 30 * time.Second

// growth is a disk whose claim is larger than it.
type growth struct {
	volume, claim string
	capacity      int64
	have          int64
	// pod has the claim: an attachment pod or the launcher pod.
	pod types.UID
}

// growing is what is known of the disks that are to grow. The driver's mu guards
// it.
type growing struct {
	// busy are volumes that are being looked at, tried is the capacity that each
	// was last brought to, retry when a failure is to be tried again.
	busy  map[string]bool
	tried map[string]int64
	retry map[string]time.Time
	// sizes are what disks have grown to.
	sizes map[string]int64
}

func newGrowing() growing {
	return growing{busy: map[string]bool{}, tried: map[string]int64{}, retry: map[string]time.Time{}, sizes: map[string]int64{}}
}

// grow starts what is to be done about claims that have grown, and tells when a
// failure is to be tried again; 0 for never.
func (d *Driver) grow(ctx context.Context) (after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.guest
	if !d.attached() || d.vmi == nil || d.prepared == nil || !d.vmi.IsRunning() || d.vmi.DeletionTimestamp != nil {
		return 0
	}
	for _, grown := range d.growths() {
		if g.growing.busy[grown.volume] || g.growing.tried[grown.volume] == grown.capacity {
			continue
		}
		if left := g.growing.retry[grown.volume].Sub(d.env.Now()); left > 0 {
			after = sooner(after, left)
			continue
		}
		g.growing.busy[grown.volume] = true
		d.helpers.Go(func() { d.growOne(ctx, g, grown) })
	}
	return after
}

// growths are the disks that are smaller than their claims. The caller holds
// d.mu.
func (d *Driver) growths() []growth {
	var list []growth
	for i := range d.vmi.Status.VolumeStatus {
		s := &d.vmi.Status.VolumeStatus[i]
		if s.PersistentVolumeClaimInfo == nil || machine.ReadOnly(&d.vmi.Spec, s.Name) {
			continue
		}
		capacity := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		grown := growth{
			volume: s.Name, claim: s.PersistentVolumeClaimInfo.ClaimName, capacity: capacity.Value(), have: s.Size, pod: d.link.pod,
		}
		if s.HotplugVolume != nil {
			grown.pod = s.HotplugVolume.AttachPodUID
			if s.Phase != v1.VolumeReady {
				continue
			}
		} else if image, ok := d.prepared.images[s.Name]; !ok || image.Overlay != "" {
			continue
		}
		if grown.have > 0 && grown.capacity > grown.have {
			list = append(list, grown)
		}
	}
	return list
}

// growOne makes one disk grow, off the driver's goroutine: it asks storage.
func (d *Driver) growOne(ctx context.Context, g *guest, grown growth) {
	size, err := d.resize(ctx, g, grown)
	d.mu.Lock()
	delete(g.growing.busy, grown.volume)
	switch {
	case err != nil:
		g.growing.retry[grown.volume] = d.env.Now().Add(growPause)
	default:
		g.growing.tried[grown.volume] = grown.capacity
		g.growing.sizes[grown.volume] = size
		g.plugs.HandleEvent("BLOCK_RESIZED", "")
	}
	instance := d.vmi
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil || instance == nil:
		return
	case err != nil:
		d.log.Info("a disk could not be made to grow", "volume", grown.volume, "reason", err.Error())
		d.env.Cluster.Event(instance, corev1.EventTypeWarning, "FailedResize", fmt.Sprintf("disk of volume %s: %v", grown.volume, err))
	case size > grown.have:
		d.env.Cluster.Event(instance, corev1.EventTypeNormal, "VolumeResized",
			fmt.Sprintf("The disk of volume %s has grown from %d to %d bytes.", grown.volume, grown.have, size))
	}
	d.poke()
}

func (d *Driver) resize(ctx context.Context, g *guest, grown growth) (int64, error) {
	volume, err := d.openVolume(ctx, grown.pod, grown.claim)
	if err != nil {
		return 0, err
	}
	defer volume.Close()
	size, err := plug.SizeFor(volume, grown.capacity)
	if err != nil || size <= grown.have {
		return grown.have, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return size, diskhotplug.Resize(ctx, g.monitor, machine.NodeName(grown.volume), size)
}
