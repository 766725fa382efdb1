package hotplug

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// cacheLag is how long a pod that was made may take to show in the cache. Only
// a request that the API server would refuse is spared by waiting for it.
const cacheLag = 5 * time.Second

// memory is what this process has lately done. Nothing depends on it but the
// number of requests, and that a failure to make a pod can be told in the
// volumes' status: a process that starts anew tries again and knows. The zero
// value is empty; it is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	vmis map[types.NamespacedName]*remembered
}

// remembered is about one VMI.
type remembered struct {
	// budgetFor is the UID of the VMI that has its disruption budget.
	budgetFor types.UID
	// pods are when each was made, why each could not be made.
	pods map[string]time.Time
	why  map[string]string
}

// of is what is remembered of a VMI. The caller holds m.mu.
func (m *memory) of(vmi types.NamespacedName) *remembered {
	if m.vmis == nil {
		m.vmis = map[types.NamespacedName]*remembered{}
	}
	if m.vmis[vmi] == nil {
		m.vmis[vmi] = &remembered{pods: map[string]time.Time{}, why: map[string]string{}}
	}
	return m.vmis[vmi]
}

// made remembers a pod that was made.
func (m *memory) made(vmi types.NamespacedName, pod string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	maps.DeleteFunc(r.pods, func(_ string, at time.Time) bool { return now.Sub(at) >= cacheLag })
	r.pods[pod] = now
	delete(r.why, pod)
}

// madeLately tells whether the cache may not show the pod yet.
func (m *memory) madeLately(vmi types.NamespacedName, pod string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.of(vmi).pods[pod]
	return ok && now.Sub(at) < cacheLag
}

// failed remembers why a pod could not be made, and tells whether that is news.
func (m *memory) failed(vmi types.NamespacedName, pod, why string) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	news = r.why[pod] != why
	r.why[pod] = why
	return news
}

// failures are why the VMI's pods could not be made, by pod.
func (m *memory) failures(vmi types.NamespacedName) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.of(vmi).why)
}

func (m *memory) protect(vmi types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(vmi).budgetFor = uid
}

func (m *memory) protected(vmi types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(vmi).budgetFor == uid
}

func (m *memory) forget(vmi types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.vmis, vmi)
}
