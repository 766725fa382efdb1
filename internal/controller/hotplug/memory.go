package hotplug

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// cacheLag bounds how long the cache may not show a new pod. The wait only saves a request.
const cacheLag = 5 * time.Second

// memory has the recent actions of this process, to save requests, and its creation errors, for the volumes' status.
// The zero value is empty. It is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	vmis map[types.NamespacedName]*remembered
}

// remembered has when each pod and the budget of a VMI was created, and why it could not be, by name.
type remembered struct {
	objects map[string]time.Time
	why     map[string]string
}

// The caller holds m.mu.
func (m *memory) of(vmi types.NamespacedName) *remembered {
	if m.vmis == nil {
		m.vmis = map[types.NamespacedName]*remembered{}
	}
	if m.vmis[vmi] == nil {
		m.vmis[vmi] = &remembered{objects: map[string]time.Time{}, why: map[string]string{}}
	}
	return m.vmis[vmi]
}

func (m *memory) made(vmi types.NamespacedName, name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	maps.DeleteFunc(r.objects, func(_ string, at time.Time) bool { return now.Sub(at) >= cacheLag })
	r.objects[name] = now
	delete(r.why, name)
}

func (m *memory) settled(vmi types.NamespacedName, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of(vmi).why, name)
}

// The cache may not show the object yet.
func (m *memory) madeLately(vmi types.NamespacedName, name string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.of(vmi).objects[name]
	return ok && now.Sub(at) < cacheLag
}

// failed reports whether the reason is new.
func (m *memory) failed(vmi types.NamespacedName, name, why string) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(vmi)
	news = r.why[name] != why
	r.why[name] = why
	return news
}

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
