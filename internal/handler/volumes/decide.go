package volumes

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
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

// growing is what is known of the disks that are to grow.
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

func (g *growing) grown() map[string]int64 { return maps.Clone(g.sizes) }

// ended notes what has come of a growth.
func (g *growing) ended(of growth, size int64, err error, now time.Time) {
	delete(g.busy, of.volume)
	if err != nil {
		g.retry[of.volume] = now.Add(growPause)
		return
	}
	g.tried[of.volume], g.sizes[of.volume] = of.capacity, size
}

// decideGrowth gives the disks that are to grow now, and when to decide again if nothing
// happens; 0 for never.
func decideGrowth(view View, g *growing, now time.Time) (due []growth, after time.Duration) {
	if !view.VMI.IsRunning() || view.VMI.DeletionTimestamp != nil {
		return nil, 0
	}
	for _, grown := range growths(view) {
		if g.busy[grown.volume] || g.tried[grown.volume] == grown.capacity {
			continue
		}
		if left := g.retry[grown.volume].Sub(now); left > 0 {
			after = backoff.Sooner(after, left)
			continue
		}
		due = append(due, grown)
	}
	return due, after
}

// growths are the disks that are smaller than their claims.
func growths(view View) []growth {
	var list []growth
	for i := range view.VMI.Status.VolumeStatus {
		s := &view.VMI.Status.VolumeStatus[i]
		if s.PersistentVolumeClaimInfo == nil || machine.ReadOnly(&view.VMI.Spec, s.Name) {
			continue
		}
		capacity := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		grown := growth{
			volume: s.Name, claim: s.PersistentVolumeClaimInfo.ClaimName, capacity: capacity.Value(), have: s.Size, pod: view.LauncherPod,
		}
		if s.HotplugVolume != nil {
			grown.pod = s.HotplugVolume.AttachPodUID
			if s.Phase != v1.VolumeReady {
				continue
			}
		} else if image, ok := view.Images[s.Name]; !ok || image.Overlay != "" {
			continue
		}
		if grown.have > 0 && grown.capacity > grown.have {
			list = append(list, grown)
		}
	}
	return list
}
