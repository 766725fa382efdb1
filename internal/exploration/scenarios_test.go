package exploration

import (
	"path"
	"slices"
	"testing"
)

func TestScenariosOfTheLongRunAreExploredOnlyWhenAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		environment string
		want        []string
	}{
		"a usual run":   {"", []string{"usual-1", "usual-2"}},
		"the long run":  {"1", []string{"usual-1", "usual-2", "long-3"}},
		"another value": {"yes", []string{"usual-1", "usual-2", "long-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(longRun, c.environment)
			// The slice has more capacity than the usual ones, as after append.
			all := []string{"1", "2", "untouched"}
			var tests []string
			EachScenario(t, all[:2], []string{"3"},
				func(scenario string) string {
					if scenario == "3" {
						return "long-3"
					}
					return "usual-" + scenario
				},
				func(t *testing.T, _ string) (*Graph[int, [2]int], error) {
					tests = append(tests, path.Base(t.Name()))
					return Explore(walk(map[int][]int{0: {1}}, nil))
				})
			if !slices.Equal(tests, c.want) {
				t.Errorf("explored in the tests %q, want %q", tests, c.want)
			}
			if all[2] != "untouched" {
				t.Errorf("the list of the usual scenarios was written to: %q", all)
			}
		})
	}
}
