package vm

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// templates remembers the template that a VMI was made from, while it is not its
// VM's any more: a VM that waits for a restart is looked at with each change of
// its VMI. A record's name follows from what is in it, so that what was read under
// a name stays true. The zero value is empty; it is safe for concurrent use.
type templates struct {
	mu sync.Mutex
	of map[types.NamespacedName]template
}

// template is what the record of that name holds.
type template struct {
	record string
	spec   *v1.VirtualMachineInstanceSpec
}

// get gives what was read from the record; nil when it is another's, or none.
// The caller must not change it.
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
