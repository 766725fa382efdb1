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

// remembered is about one VMI: when each of its pods and its disruption budget
// was made, and why each could not be made, by name.
type remembered struct {
	objects map[string]time.Time
	why     map[string]string
}

// of is what is remembered of a VMI. The caller holds m.mu.
func (m *memory) of(vmi types.NamespacedName) *remembered {
	if m.vmis == nil {
		m.vmis = map[types.NamespacedName]*remembered{}
	}
	if m.vmis[vmi] == nil {
		m.vmis[vmi] = &remembered{objects: map[string]time.Time{}, why: map[string]string{}}
	}
	return m.vmis[vmi]
}

// made remembers an object that was made.
func (m *memory) made(vmi types.NamespacedName, name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	maps.DeleteFunc(r.objects, func(_ string, at time.Time) bool { return now.Sub(at) >= cacheLag })
	r.objects[name] = now
	delete(r.why, name)
}

// settled forgets why an object could not be made.
func (m *memory) settled(vmi types.NamespacedName, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of(vmi).why, name)
}

// madeLately reports whether the cache may not show the object yet.
func (m *memory) madeLately(vmi types.NamespacedName, name string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.of(vmi).objects[name]
	return ok && now.Sub(at) < cacheLag
}

// failed remembers why an object could not be made, and reports whether that is news.
func (m *memory) failed(vmi types.NamespacedName, name, why string) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	news = r.why[name] != why
	r.why[name] = why
	return news
}

// failures are why the VMI's pods and its budget could not be made, by name.
func (m *memory) failures(vmi types.NamespacedName) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.of(vmi).why)
}

func (m *memory) forget(vmi types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.vmis, vmi)
}
