package defaults

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestMigration(t *testing.T) {
	long := strings.Repeat("a", 200)
	for name, c := range map[string]struct {
		vmi    string
		labels map[string]string
		want   map[string]string
	}{
		"of a VMI":                        {"vm", nil, map[string]string{v1.MigrationSelectorLabel: "vm"}},
		"with labels":                     {"vm", map[string]string{"app": "web", v1.MigrationSelectorLabel: "other"}, map[string]string{"app": "web", v1.MigrationSelectorLabel: "vm"}},
		"of a name that nothing has":      {"a/b", nil, nil},
		"of a name longer than a label's": {long, nil, map[string]string{v1.MigrationSelectorLabel: long[:57] + "-ykuqr"}},
	} {
		for _, finalizers := range [][]string{nil, {"a", v1.VirtualMachineInstanceMigrationFinalizer}} {
			m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Finalizers: finalizers}}
			m.Spec.VMIName = c.vmi
			Migration(m)
			if diff := cmp.Diff(c.want, m.Labels); diff != "" {
				t.Errorf("%s: want, got:\n%s", name, diff)
			}
			if n := len(slices.DeleteFunc(m.Finalizers, func(f string) bool { return f != v1.VirtualMachineInstanceMigrationFinalizer })); n != 1 {
				t.Errorf("%s: %d finalizers", name, n)
			}
		}
	}
}
