package disks

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	migrations "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// growPause is the backoff after a failure: the claim shows its new size before the device, or the file system is full.
const growPause = 30 * time.Second

type growth struct {
	volume, claim string
	capacity      int64
	have          int64
	// pod has the claim: an attachment pod or the launcher pod.
	pod types.UID
}

// target names the claim, too: another claim may come under the volume's name.
type target struct {
	claim    string
	capacity int64
}

func (g growth) target() target { return target{g.claim, g.capacity} }

type growing struct {
	busy  map[string]bool
	tried map[string]target    // the last success
	retry map[string]time.Time // of the next attempt after a failure
	sizes map[string]int64     // after growth, in bytes
}

func newGrowing() growing {
	return growing{busy: map[string]bool{}, tried: map[string]target{}, retry: map[string]time.Time{}, sizes: map[string]int64{}}
}

func (g *growing) clone() growing {
	return growing{busy: maps.Clone(g.busy), tried: maps.Clone(g.tried), retry: maps.Clone(g.retry), sizes: maps.Clone(g.sizes)}
}

func (g *growing) recordResult(of growth, size int64, err error, now time.Time) {
	delete(g.busy, of.volume)
	if err != nil {
		g.retry[of.volume] = now.Add(growPause)
		return
	}
	g.tried[of.volume], g.sizes[of.volume] = of.target(), size
}

// decideGrowth returns the disks to grow now, and the delay until the next decision without an event, 0 for never. Disks
// keep their size in a migration: QEMU at the target has opened them, and QEMU here does not resize a disk that it copies.
func decideGrowth(r *concern.Round, g *growing, now time.Time) (due []growth, after time.Duration) {
	if !r.VMI.IsRunning() || r.VMI.DeletionTimestamp != nil || migrations.InFlight(r.VMI) {
		return nil, 0
	}
	for i := range r.VMI.Status.VolumeStatus {
		s := &r.VMI.Status.VolumeStatus[i]
		if s.PersistentVolumeClaimInfo == nil || machine.ReadOnly(&r.VMI.Spec, s.Name) {
			continue
		}
		pod, ok := holder(r, s)
		if !ok {
			continue
		}
		capacity := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		grown := growth{volume: s.Name, claim: s.PersistentVolumeClaimInfo.ClaimName, capacity: capacity.Value(), have: s.Size, pod: pod}
		if grown.have <= 0 || grown.capacity <= grown.have || g.busy[grown.volume] || g.tried[grown.volume] == grown.target() {
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

// holder returns the pod on this node from which QEMU has a volume's disk. It returns false if the claim is not the
// status's: after a migration the status has the source node's claims and attachment pods until the first write here.
func holder(r *concern.Round, s *v1.VolumeStatus) (types.UID, bool) {
	claim := s.PersistentVolumeClaimInfo.ClaimName
	if s.HotplugVolume == nil {
		image, opened := r.Images[s.Name]
		mounted := r.Claims[s.Name]
		return r.LauncherPod, opened && image.Overlay == "" && mounted != nil && mounted.ClaimName == claim
	}
	held := slices.ContainsFunc(r.AttachmentPods, func(p hotplug.Pod) bool {
		return p.UID == s.HotplugVolume.AttachPodUID && p.Holds(hotplug.Volume{Name: s.Name, Claim: claim})
	})
	return s.HotplugVolume.AttachPodUID, held && s.Phase == v1.VolumeReady
}
