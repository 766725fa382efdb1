// Package invariant states what must hold of a VMI's hotplugged volumes and
// their attachment pods at every observable moment: H1 to H3 of package
// hotplug, as code.
//
// It owns the statements only and shares no code with the planner that it
// judges. The exploration of the planner asserts it in every state; tests on a
// cluster assert it on what a watch has seen (History).
package invariant

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Volume is what the VMI's status says of a hotplugged volume, and whether
// its spec asks for it.
type Volume struct {
	Name  string
	Phase v1.VolumePhase
	// Pod is the UID of the attachment pod that the status names.
	Pod    string
	Wanted bool
	// Open reports whether QEMU is known to have the volume's disk open, whatever the
	// status says.
	Open bool
}

// Pod is an attachment pod.
type Pod struct {
	UID     string
	Volumes []string
	// Running includes a pod that is being deleted and still runs.
	Running, Terminating bool
	// DeletedExternally reports whether somebody who is not the planner has taken it away: it was
	// evicted, deleted by hand, or it failed.
	DeletedExternally bool
}

// Snapshot is one observable moment.
type Snapshot struct {
	Volumes []Volume
	Pods    []Pod
	// DeletedExternally are the UIDs of pods that are gone because somebody else deleted them.
	DeletedExternally func(uid string) bool
}

func (p *Pod) holds(volume string) bool { return slices.Contains(p.Volumes, volume) }
func (p *Pod) alive() bool              { return p.Running && !p.Terminating }

// inUse reports whether the guest may be using a volume in this phase.
func inUse(phase v1.VolumePhase) bool {
	return phase == v1.HotplugVolumeMounted || phase == v1.VolumeReady || phase == v1.HotplugVolumeDetaching
}

// Held is H1: every volume that is in use, or that QEMU has open, is held by a pod that
// runs and is not terminating, unless somebody else took away the pod that served it.
func Held(s Snapshot) error {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if !inUse(v.Phase) && !v.Open || s.wasDeletedExternally(v.Pod) {
			continue
		}
		if !slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.alive() && p.holds(v.Name) }) {
			return fmt.Errorf("H1: volume %s is %s and no pod that runs and stays holds it", v.Name, v.Phase)
		}
	}
	return nil
}

// Deletable is H2: the deletion of the pod, at the moment before it, takes
// nothing away.
func Deletable(s Snapshot, uid string) error {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if p := s.pod(uid); p == nil || !p.holds(v.Name) {
			continue
		}
		if v.Pod == uid && v.Phase == v1.HotplugVolumeAttachedToNode {
			return fmt.Errorf("H2: pod %s is deleted, which volume %s is about to be brought in from", uid, v.Name)
		}
		if !inUse(v.Phase) {
			continue
		}
		through := s.pod(v.Pod)
		switch {
		case v.Pod == uid:
			return fmt.Errorf("H2: pod %s is deleted, which volume %s is %s through", uid, v.Name, v.Phase)
		case s.wasDeletedExternally(v.Pod):
		case through == nil || !through.alive() || !through.holds(v.Name):
			return fmt.Errorf("H2: pod %s is deleted and volume %s is %s through pod %q, which does not hold it", uid, v.Name, v.Phase, v.Pod)
		}
	}
	return nil
}

func (s Snapshot) pod(uid string) *Pod {
	for i := range s.Pods {
		if s.Pods[i].UID == uid {
			return &s.Pods[i]
		}
	}
	return nil
}

func (s Snapshot) wasDeletedExternally(uid string) bool {
	if p := s.pod(uid); p != nil {
		return p.DeletedExternally
	}
	return s.DeletedExternally != nil && s.DeletedExternally(uid)
}
