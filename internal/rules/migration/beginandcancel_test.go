package migration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestAMigrationWhoseObjectIsGone must be canceled, as if it were being deleted.
func TestAMigrationWhoseObjectIsGone(t *testing.T) {
	type vmi = v1.VirtualMachineInstance
	begun := func(v *vmi) { v.Status.MigrationState.StartTimestamp = &metav1.Time{Time: noon} }
	for name, c := range map[string]struct {
		edit func(*vmi)
		want Told
	}{
		"nothing was sent":                     {func(*vmi) {}, Told{Abort: true, Failure: canceled}},
		"the guest is on its way":              {begun, Told{Abort: true}},
		"the source has been asked":            {func(v *vmi) { begun(v); v.Status.MigrationState.AbortRequested = true }, Told{}},
		"the guest has arrived":                {func(v *vmi) { begun(v); v.Status.MigrationState.Completed = true }, Told{}},
		"it has failed":                        {func(v *vmi) { v.Status.MigrationState.Failed = true }, Told{}},
		"the VMI names another one":            {func(v *vmi) { v.Status.MigrationState.MigrationUID = "other" }, Told{}},
		"the VMI names none":                   {func(v *vmi) { v.Status.MigrationState = nil }, Told{}},
		"the VMI has ended":                    {func(v *vmi) { v.Status.Phase = v1.Failed }, Told{}},
		"the VMI is being deleted, and it ran": {func(v *vmi) { v.DeletionTimestamp = &metav1.Time{Time: noon} }, Told{Abort: true, Failure: canceled}},
	} {
		v := observed().VMI
		v.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
		c.edit(v)
		if got := Orphaned(v, "m"); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
