package migration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

func TestGarbage(t *testing.T) {
	done := func(name string, seconds int, edits ...change) *v1.VirtualMachineInstanceMigration {
		return made("a", name, 0, append([]change{over(v1.MigrationSucceeded, seconds)}, edits...)...)
	}
	five := func(more ...*v1.VirtualMachineInstanceMigration) []*v1.VirtualMachineInstanceMigration {
		return append(more, done("1", 10), done("2", 20, over(v1.MigrationFailed, 20)), done("3", 30), done("4", 40), done("5", 50))
	}
	for name, c := range map[string]struct {
		migrations []*v1.VirtualMachineInstanceMigration
		gone       bool
		at         time.Duration
		want       []string
		after      time.Duration
	}{
		"none":                          {nil, false, 0, nil, 0},
		"as many as are kept":           {five(), false, time.Hour, nil, 0},
		"one too many":                  {five(done("0", 5)), false, time.Minute, []string{"0"}, 0},
		"a newer one":                   {five(done("6", 60)), false, time.Minute, []string{"1"}, 0},
		"two too many":                  {five(done("6", 60), done("0", 0)), false, time.Minute, []string{"1", "0"}, 0},
		"some that go already":          {five(done("6", 60, gone), done("0", 5, gone)), false, time.Minute, nil, 0},
		"some that run":                 {five(made("a", "6", 60), made("a", "7", 70, phase(v1.MigrationRunning))), false, time.Minute, nil, 0},
		"of the same moment, by age":    {five(made("a", "new", 5, over(v1.MigrationSucceeded, 5)), made("a", "old", 2, over(v1.MigrationSucceeded, 5))), false, time.Minute, []string{"new", "old"}, 0},
		"of the same age, by name":      {five(done("y", 5), done("x", 5)), false, time.Minute, []string{"x", "y"}, 0},
		"one that does not say when":    {five(made("a", "6", 25, phase(v1.MigrationSucceeded))), false, time.Minute, []string{"1"}, 0},
		"the VMI has gone":              {five(), true, 5 * time.Minute, nil, 5*time.Minute + 10*time.Second},
		"the VMI has gone for a while":  {five(), true, 10*time.Minute + 30*time.Second, []string{"3", "2", "1"}, 10 * time.Second},
		"the VMI has gone for long":     {five(), true, time.Hour, []string{"5", "4", "3", "2", "1"}, 0},
		"the VMI has gone, one is left": {[]*v1.VirtualMachineInstanceMigration{made("a", "1", 0)}, true, time.Hour, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			garbage, after := Garbage(c.migrations, !c.gone, noon.Add(c.at))
			var got []string
			for _, m := range garbage {
				got = append(got, m.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || after != c.after {
				t.Errorf("after %v, want %v:\n%s", after, c.after, diff)
			}
		})
	}
}
