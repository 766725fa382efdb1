package clusterconfig

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// TheOne returns the effective KubeVirt object, in any namespace, or nil. Admission refuses a second one. Of two that
// were created at once or without admission, the one in home, the components' namespace, comes first, then the oldest
// (decision 545).
func TheOne(all []v1.KubeVirt, home string) *v1.KubeVirt {
	var one *v1.KubeVirt
	for i := range all {
		if one == nil || before(&all[i], one, home) {
			one = &all[i]
		}
	}
	return one
}

func before(a, b *v1.KubeVirt, home string) bool {
	if (a.Namespace == home) != (b.Namespace == home) {
		return a.Namespace == home
	}
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	) < 0
}

// Watched updates Current from watch events. It is safe for concurrent use.
type Watched struct {
	Home    string
	Current *Current
	// Changed, if not nil, gets the settings after each event.
	Changed func(Settings)

	mu  sync.Mutex
	all []v1.KubeVirt
}

// Seen handles an added or updated object.
func (w *Watched) Seen(kv *v1.KubeVirt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(kv)
	w.all = append(w.all, *kv)
	w.choose()
}

// Gone handles a deleted object.
func (w *Watched) Gone(kv *v1.KubeVirt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(kv)
	w.choose()
}

func (w *Watched) choose() {
	w.Current.Set(TheOne(w.all, w.Home))
	if w.Changed != nil {
		w.Changed(w.Current.Get())
	}
}

func (w *Watched) forget(kv *v1.KubeVirt) {
	w.all = slices.DeleteFunc(w.all, func(known v1.KubeVirt) bool { return key(&known) == key(kv) })
}

func key(kv *v1.KubeVirt) types.NamespacedName {
	return types.NamespacedName{Namespace: kv.Namespace, Name: kv.Name}
}
