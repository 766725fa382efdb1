package vm

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// templates remembers the template from which a VMI was created if its VM's template differs. Entries stay valid, since a
// record's name follows from its content. The zero value is empty. It is safe for concurrent use.
type templates struct {
	mu sync.Mutex
	of map[types.NamespacedName]template
}

type template struct {
	record string
	spec   *v1.VirtualMachineInstanceSpec
}

// get returns the content of the record, nil if unknown. The caller must not change it.
func (t *templates) get(vm types.NamespacedName, record string) *v1.VirtualMachineInstanceSpec {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.of[vm]; known.record == record {
		return known.spec
	}
	return nil
}

func (t *templates) put(vm types.NamespacedName, known template) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[types.NamespacedName]template{}
	}
	t.of[vm] = known
}

func (t *templates) forget(vm types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, vm)
}
