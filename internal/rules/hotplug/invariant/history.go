package invariant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// History has the watched versions of one VMI and its attachment pods, which may arrive in any order. It is safe for
// concurrent use.
type History struct {
	mu                sync.Mutex
	moments           []moment
	deletedExternally map[string]bool
}

type moment struct {
	version uint64
	about   string
	// of the VMI
	volumes []Volume
	over    bool // no guest runs any more
	isVMI   bool
	// of a pod
	pod  Pod
	gone bool
}

// VMI records a version.
func (h *History) VMI(vmi *v1.VirtualMachineInstance) {
	m := moment{version: version(vmi.ResourceVersion), about: "VMI " + vmi.Name, isVMI: true, over: vmi.IsFinal()}
	wanted := map[string]bool{}
	for i := range vmi.Spec.Volumes {
		wanted[vmi.Spec.Volumes[i].Name] = true
	}
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.HotplugVolume != nil {
			m.volumes = append(m.volumes, Volume{
				Name: s.Name, Phase: s.Phase, Pod: string(s.HotplugVolume.AttachPodUID), Wanted: wanted[s.Name],
			})
		}
	}
	h.add(m)
}

// Pod records a version; gone means that it was deleted.
func (h *History) Pod(pod *corev1.Pod, gone bool) {
	m := moment{version: version(pod.ResourceVersion), about: "pod " + pod.Name, gone: gone}
	m.pod = Pod{UID: string(pod.UID), Terminating: pod.DeletionTimestamp != nil}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil {
			m.pod.Volumes = append(m.pod.Volumes, v.Name)
		}
	}
	for i := range pod.Status.ContainerStatuses {
		m.pod.Running = pod.Status.Phase == corev1.PodRunning && pod.Status.ContainerStatuses[i].State.Running != nil
	}
	h.add(m)
	if podstatus.Terminal(pod) {
		h.DeleteExternally(string(pod.UID))
	}
}

// DeleteExternally records that somebody else than the planner removed a pod.
func (h *History) DeleteExternally(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deletedExternally == nil {
		h.deletedExternally = map[string]bool{}
	}
	h.deletedExternally[uid] = true
}

func (h *History) add(m moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moments = append(h.moments, m)
}

// version parses a resourceVersion, which is a number in every API server's store.
func version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the resourceVersion %q is no number", text))
	}
	return n
}

// Check returns all violations of H1 and H2.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.moments, func(a, b moment) int { return cmp.Compare(a.version, b.version) })
	s := Snapshot{DeletedExternally: func(uid string) bool { return h.deletedExternally[uid] }}
	var broken []error
	note := func(m moment, err error) {
		if err != nil {
			broken = append(broken, fmt.Errorf("at version %d (%s): %w", m.version, m.about, err))
		}
	}
	for _, m := range h.moments {
		if m.over {
			break
		}
		if m.isVMI {
			s.Volumes = m.volumes
		} else {
			m.pod.DeletedExternally = h.deletedExternally[m.pod.UID]
			if before := s.pod(m.pod.UID); before != nil && !before.DeletedExternally && !before.Terminating && (m.pod.Terminating || m.gone) {
				note(m, Deletable(s, m.pod.UID))
			}
			s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p Pod) bool { return p.UID == m.pod.UID })
			if !m.gone {
				s.Pods = append(s.Pods, m.pod)
			}
		}
		note(m, Held(s))
	}
	return errors.Join(broken...)
}

// Pods counts the attachment pods ever seen, and those at the end.
func (h *History) Pods() (ever, now int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := map[string]bool{}
	for _, m := range h.moments {
		if !m.isVMI {
			gone[m.pod.UID] = gone[m.pod.UID] || m.gone
		}
	}
	for _, g := range gone {
		if !g {
			now++
		}
	}
	return len(gone), now
}
