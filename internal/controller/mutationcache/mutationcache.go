// Package mutationcache remembers the newest version of each object that this process wrote, until the cache has it. A loop
// would otherwise decide on the state before its own write, and the API server would refuse its writes.
//
// It must not read or write the cluster.
package mutationcache

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Memory is for one kind of object. The zero value is empty. It is safe for concurrent use.
type Memory[T client.Object] struct {
	mu     sync.Mutex
	newest map[types.NamespacedName]T
}

// Wrote remembers an object from the API server's response.
func (m *Memory[T]) Wrote(object T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		m.newest = map[types.NamespacedName]T{}
	}
	m.newest[client.ObjectKeyFromObject(object)] = object
}

// Newer returns the remembered version if that is newer than cached, else cached. The caller must not change it.
func (m *Memory[T]) Newer(cached T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	ours, ok := m.newest[key]
	if !ok {
		return cached
	}
	if ours.GetUID() == cached.GetUID() {
		order, err := resourceversion.CompareResourceVersion(ours.GetResourceVersion(), cached.GetResourceVersion())
		if err == nil && order > 0 {
			return ours
		}
	}
	delete(m.newest, key)
	return cached
}

// Has reports whether a version is remembered.
func (m *Memory[T]) Has(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.newest[key]
	return ok
}

// Forget drops an object that does not exist any more.
func (m *Memory[T]) Forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.newest, key)
}

// Deletions remembers, for each key of a loop, the dependent whose deletion was requested: the request is not repeated. The
// zero value is empty. It is safe for concurrent use.
type Deletions struct {
	mu    sync.Mutex
	asked map[types.NamespacedName]types.UID
}

// Asked reports whether the deletion was requested.
func (d *Deletions) Asked(owner types.NamespacedName, dependent types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[owner] == dependent
}

// Ask remembers an accepted deletion.
func (d *Deletions) Ask(owner types.NamespacedName, dependent types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked == nil {
		d.asked = map[types.NamespacedName]types.UID{}
	}
	d.asked[owner] = dependent
}

// Forget drops the owner's entry.
func (d *Deletions) Forget(owner types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asked, owner)
}
