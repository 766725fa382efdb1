package migration

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// updating is a migration that Drydock created for an update, this long before noon.
func updating(uid types.UID, ago time.Duration, edits ...func(*v1.VirtualMachineInstanceMigration)) *v1.VirtualMachineInstanceMigration {
	m := Automatic(&v1.VirtualMachineInstance{}, v1.WorkloadUpdateMigrationAnnotation, "", string(uid))
	m.UID, m.CreationTimestamp = uid, metav1.NewTime(noon.Add(-ago))
	for _, e := range edits {
		e(m)
	}
	return m
}

// TestTheLastMigrationThatWasAskedFor: of two with the same second the one with the greater UID is the later.
func TestTheLastMigrationThatWasAskedFor(t *testing.T) {
	all := []*v1.VirtualMachineInstanceMigration{updating("m9", 3*time.Hour), updating("m2", 2*time.Hour), updating("m1", 2*time.Hour)}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	later := func(edit func(*v1.VirtualMachineInstanceMigration)) []*v1.VirtualMachineInstanceMigration {
		return append(slices.Clone(all), updating("users", time.Hour, edit))
	}
	for name, c := range map[string]struct {
		of   []*v1.VirtualMachineInstanceMigration
		want string
	}{
		"none":                               {nil, ""},
		"several":                            {all, "m2"},
		"several in another order":           {reversed, "m2"},
		"one that was asked for later":       {append(slices.Clone(all), updating("m0", time.Minute)), "m0"},
		"a later one without the annotation": {later(func(m *v1.VirtualMachineInstanceMigration) { m.Annotations = nil }), "m2"},
		"a later one for another reason": {later(func(m *v1.VirtualMachineInstanceMigration) {
			m.Annotations = map[string]string{v1.EvacuationMigrationAnnotation: ""}
		}), "m2"},
		"a later one with a user's priority": {later(func(m *v1.VirtualMachineInstanceMigration) { m.Spec.Priority = new(v1.PriorityUserTriggered) }), "m2"},
		"a later one without a priority":     {later(func(m *v1.VirtualMachineInstanceMigration) { m.Spec.Priority = nil }), "m2"},
		"only a user's":                      {later(func(m *v1.VirtualMachineInstanceMigration) { m.Spec.Priority = nil })[3:], ""},
	} {
		if got := LastFor(c.of, v1.WorkloadUpdateMigrationAnnotation); got != c.want {
			t.Errorf("%s: the last is %q, want %q", name, got, c.want)
		}
	}
}
