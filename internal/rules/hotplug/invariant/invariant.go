// Package invariant states the invariants H1 and H2 of package hotplug as code.
//
// It must share no code with the planner that it judges. The exploration of the planner asserts the
// invariants in every state; tests on a cluster assert them on watched objects (History).
package invariant

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Volume is a hotplugged volume in the VMI's status.
type Volume struct {
	Name   string
	Phase  v1.VolumePhase
	Pod    string // UID of the attachment pod in the status
	Wanted bool
	Open   bool // QEMU is known to have the disk open, whatever the status
}

// Pod is an attachment pod.
type Pod struct {
	UID                  string
	Volumes              []string
	Running, Terminating bool // may both be true
	// DeletedExternally means that it was evicted or deleted by hand, or failed.
	DeletedExternally bool
}

// Snapshot is one observable moment.
type Snapshot struct {
	Volumes           []Volume
	Pods              []Pod
	DeletedExternally func(uid string) bool // for pods that are gone
}

func (p *Pod) holds(volume string) bool { return slices.Contains(p.Volumes, volume) }
func (p *Pod) alive() bool              { return p.Running && !p.Terminating }

func inUse(phase v1.VolumePhase) bool {
	return phase == v1.HotplugVolumeMounted || phase == v1.VolumeReady || phase == v1.HotplugVolumeDetaching
}

// Held is H1. It does not cover volumes whose serving pod was deleted externally.
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

// Deletable is H2 for a pod to be deleted.
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
