package volumes

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// growPause is the backoff after a failure to grow a disk: the claim shows its new size before the device has it, or
// the file system is full.
const growPause = 30 * time.Second

type growth struct {
	volume, claim string
	capacity      int64
	have          int64
	// pod has the claim: an attachment pod or the launcher pod.
	pod types.UID
}

// growing is the state of the growing disks, by volume.
type growing struct {
	// busy are the volumes in progress, tried is the capacity of the last success, retry the time of the next attempt
	// after a failure.
	busy  map[string]bool
	tried map[string]int64
	retry map[string]time.Time
	// sizes are the sizes after growth, in bytes.
	sizes map[string]int64
}

func newGrowing() growing {
	return growing{busy: map[string]bool{}, tried: map[string]int64{}, retry: map[string]time.Time{}, sizes: map[string]int64{}}
}

func (g *growing) grown() map[string]int64 { return maps.Clone(g.sizes) }

func (g *growing) recordResult(of growth, size int64, err error, now time.Time) {
	delete(g.busy, of.volume)
	if err != nil {
		g.retry[of.volume] = now.Add(growPause)
		return
	}
	g.tried[of.volume], g.sizes[of.volume] = of.capacity, size
}

// decideGrowth returns the disks to grow now, and when to decide again without an event, 0 for never. During a
// migration the disks keep their size: QEMU at the target has opened them, and QEMU here does not resize a disk that it
// copies.
func decideGrowth(view View, g *growing, now time.Time) (due []growth, after time.Duration) {
	if !view.VMI.IsRunning() || view.VMI.DeletionTimestamp != nil || view.Still {
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

func growths(view View) []growth {
	var list []growth
	for i := range view.VMI.Status.VolumeStatus {
		s := &view.VMI.Status.VolumeStatus[i]
		if s.PersistentVolumeClaimInfo == nil || machine.ReadOnly(&view.VMI.Spec, s.Name) {
			continue
		}
		pod, ok := view.holder(s)
		if !ok {
			continue
		}
		capacity := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		grown := growth{volume: s.Name, claim: s.PersistentVolumeClaimInfo.ClaimName, capacity: capacity.Value(), have: s.Size, pod: pod}
		if grown.have > 0 && grown.capacity > grown.have {
			list = append(list, grown)
		}
	}
	return list
}

// holder returns the pod on this node from which QEMU has a volume's disk. It returns false if QEMU does not have the
// disk from the status's claim, or no pod here has it. After a migration, until its first write here, the status still
// has the claims or the attachment pods of the source node.
func (view *View) holder(s *v1.VolumeStatus) (types.UID, bool) {
	claim := s.PersistentVolumeClaimInfo.ClaimName
	if s.HotplugVolume == nil {
		image, opened := view.Images[s.Name]
		mounted := view.Claims[s.Name]
		return view.LauncherPod, opened && image.Overlay == "" && mounted != nil && mounted.ClaimName == claim
	}
	held := slices.ContainsFunc(view.AttachmentPods, func(p hotplug.Pod) bool {
		return p.UID == s.HotplugVolume.AttachPodUID && p.Holds(hotplug.Volume{Name: s.Name, Claim: claim})
	})
	return s.HotplugVolume.AttachPodUID, held && s.Phase == v1.VolumeReady
}
