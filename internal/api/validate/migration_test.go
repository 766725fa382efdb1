package validate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"

	"drydock.dev/drydock/internal/rules/migration"
)

func TestNewMigrations(t *testing.T) {
	type (
		vmi    = v1.VirtualMachineInstance
		object = v1.VirtualMachineInstanceMigration
	)
	running := func(edits ...func(*vmi)) *vmi {
		v := &vmi{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "vm"}}
		v.Status.Phase, v.Status.NodeName = v1.Running, "node1"
		for _, e := range edits {
			e(v)
		}
		return v
	}
	moving := running(func(v *vmi) { v.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{} })
	other := func(vmi string, phase v1.VirtualMachineInstanceMigrationPhase) []object {
		m := object{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
		m.Spec.VMIName, m.Status.Phase = vmi, phase
		return []object{m}
	}
	of := func(p v1.MigrationPriority) func(*object) { return func(m *object) { m.Spec.Priority = &p } }
	const inFlight = ": Forbidden: in-flight migration detected. VMI vm is being migrated already, by the migration first; delete that to cancel it"
	for name, c := range map[string]struct {
		edit      func(*object)
		component bool
		vmi       *vmi
		others    []object
		want      string
	}{
		"one that can be done":                   {nil, false, running(), nil, ""},
		"of a VMI that does not exist":           {nil, false, nil, nil, `spec.vmiName: Invalid value: "vm": there is no such VMI in namespace lab`},
		"of no VMI":                              {func(m *object) { m.Spec.VMIName = "" }, false, nil, nil, "spec.vmiName: Required value: a migration needs the name of the VMI that it moves"},
		"of a VMI that starts":                   {nil, false, running(func(v *vmi) { v.Status.Phase = v1.Scheduled }), nil, ""},
		"of a VMI that starts and is deleted":    {nil, false, running(func(v *vmi) { v.Status.Phase, v.DeletionTimestamp = v1.Scheduled, new(metav1.Now()) }), nil, "spec.vmiName: Forbidden: cannot migrate VMI vm: the VMI is being deleted"},
		"a second one of a VMI that starts":      {nil, false, running(func(v *vmi) { v.Status.Phase = v1.Pending }), other("vm", ""), inFlight},
		"of a VMI that has ended":                {nil, false, running(func(v *vmi) { v.Status.Phase = v1.Failed }), nil, "spec.vmiName: Forbidden: cannot migrate VMI vm: the VMI has ended: its phase is Failed"},
		"of a VMI that has ended while it moved": {nil, false, running(func(v *vmi) { v.Status.Phase = v1.Failed }), other("vm", v1.MigrationRunning), "spec.vmiName: Forbidden: cannot migrate VMI vm: the VMI has ended: its phase is Failed"},
		"of a VMI that stays": {nil, false, running(func(v *vmi) {
			v.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable, Status: "False",
				Reason: "DisksNotLiveMigratable", Message: "cannot migrate VMI: PVC a is not shared"}}
		}), nil, "spec.vmiName: Forbidden: cannot migrate VMI vm: PVC a is not shared (DisksNotLiveMigratable)"},
		"of a VMI that moves":                {nil, false, moving, nil, ": Forbidden: in-flight migration detected. VMI vm is being migrated already"},
		"a second one":                       {nil, false, moving, other("vm", v1.MigrationRunning), inFlight},
		"a second one while the first waits": {nil, false, running(), other("vm", ""), inFlight},
		"a component's second one":           {nil, true, running(), other("vm", v1.MigrationPending), inFlight},
		"the same one again":                 {func(m *object) { m.Name = "first" }, true, moving, other("vm", v1.MigrationRunning), ""},
		"after one that has failed":          {nil, false, running(), other("vm", v1.MigrationFailed), ""},
		"after one that has succeeded":       {nil, false, running(), other("vm", v1.MigrationSucceeded), ""},
		"beside another VMI's":               {nil, false, running(), other("other", v1.MigrationRunning), ""},
		"a user's priority":                  {of(v1.PriorityUserTriggered), false, running(), nil, ""},
		"a priority that is not a user's":    {of(v1.PrioritySystemMaintenance), false, running(), nil, "spec.priority: Forbidden: system-maintenance is for the migrations that Drydock itself asks for; a user's are user-triggered, as are those that say nothing"},
		"a component's priority":             {of(v1.PrioritySystemCritical), true, running(), nil, ""},
		"a component's unknown priority":     {of("urgent"), true, running(), nil, `spec.priority: Unsupported value: "urgent": supported values: "system-critical", "user-triggered", "system-maintenance"`},
		"a selector":                         {func(m *object) { m.Spec.AddedNodeSelector = map[string]string{"zone": "a"} }, false, running(), nil, ""},
		"to another cluster": {func(m *object) { m.Spec.SendTo = &v1.VirtualMachineInstanceMigrationSource{} }, false, running(), nil,
			"spec.sendTo: Forbidden: " + migration.NotBetweenClusters},
	} {
		m := &object{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m"}}
		m.Spec.VMIName = "vm"
		if c.edit != nil {
			c.edit(m)
		}
		if got := text(Migration(m, c.component, c.vmi, c.others)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChangesOfMigrations(t *testing.T) {
	type object = v1.VirtualMachineInstanceMigration
	const immutable = "spec: Forbidden: a migration can't be changed: delete it, which cancels it, and create another"
	for name, c := range map[string]struct {
		edit func(*object)
		want string
	}{
		"nothing":               {func(*object) {}, ""},
		"a label of the user's": {func(m *object) { m.Labels["app"] = "x" }, ""},
		"a finalizer":           {func(m *object) { m.Finalizers = nil }, ""},
		"another VMI":           {func(m *object) { m.Spec.VMIName = "other" }, immutable},
		"a priority":            {func(m *object) { m.Spec.Priority = new(v1.PriorityUserTriggered) }, immutable},
		"the label that it is found by": {func(m *object) { m.Labels[v1.MigrationSelectorLabel] = "other" },
			"metadata.labels[kubevirt.io/vmi-name]: Forbidden: the migrations of a VMI are found by this label"},
	} {
		old := &object{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.MigrationSelectorLabel: "vm"}, Finalizers: []string{"a"}}}
		old.Spec.VMIName = "vm"
		m := old.DeepCopy()
		c.edit(m)
		if got := text(MigrationUpdate(m, old)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An invalid policy of an earlier release must be able to lose its finalizers.
func TestChangesOfPoliciesThatAreWrongAlready(t *testing.T) {
	type object = migrationsv1alpha1.MigrationPolicy
	wrong := &object{Spec: migrationsv1alpha1.MigrationPolicySpec{CompletionTimeoutPerGiB: new(int64(-1))}}
	for name, c := range map[string]struct {
		edit func(*object)
		want bool
	}{
		"nothing":                   {func(*object) {}, false},
		"the spec":                  {func(p *object) { p.Spec.CompletionTimeoutPerGiB = new(int64(-2)) }, true},
		"the spec of one that goes": {func(p *object) { p.Spec.AllowPostCopy, p.DeletionTimestamp = new(true), &metav1.Time{} }, false},
	} {
		p := wrong.DeepCopy()
		c.edit(p)
		if errs := MigrationPolicy(p, wrong); len(errs) > 0 != c.want {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestAPolicyThatIsRight(t *testing.T) {
	p := &migrationsv1alpha1.MigrationPolicy{Spec: migrationsv1alpha1.MigrationPolicySpec{CompletionTimeoutPerGiB: new(int64(0)),
		Selectors: &migrationsv1alpha1.Selectors{NamespaceSelector: map[string]string{"a": "b"}}}}
	if errs := MigrationPolicy(p, nil); len(errs) > 0 {
		t.Error(errs)
	}
}

// virt-handlers find arriving guests by these labels, and pods find their migration.
func TestLabelsOfMigrationsAreTheComponents(t *testing.T) {
	const prohibited = ": Forbidden: modification of the reserved kubevirt.io labels on a VMI object is prohibited"
	for _, label := range []string{v1.MigrationTargetNodeNameLabel, v1.MigrationJobLabel} {
		old := &v1.VirtualMachineInstance{}
		labeled := old.DeepCopy()
		labeled.Labels = map[string]string{label: "node2"}
		want := "metadata.labels[" + label + "]" + prohibited
		if got := text(VMIUpdate(labeled, old)); got != want {
			t.Errorf("%s is set: %q", label, got)
		}
		if got := text(VMIUpdate(old, labeled)); got != want {
			t.Errorf("%s is taken off: %q", label, got)
		}
	}
}
