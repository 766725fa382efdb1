package hotplug_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/rules/hotplug"
)

func TestWhichAttachmentPodsAreLeftOver(t *testing.T) {
	pods := []hotplug.Leftover{
		{Pod: hotplug.Pod{Name: "hp-old"}, VMI: "old"},
		{Pod: hotplug.Pod{Name: "hp-new"}, VMI: "new"},
		{Pod: hotplug.Pod{Name: "hp-nobody's"}},
	}
	tests := map[string]struct {
		instance types.UID
		guests   map[types.UID]bool
		want     []string
		wait     bool
	}{
		"the VMI is gone, and its guest":                           {"", nil, []string{"hp-old", "hp-new", "hp-nobody's"}, false},
		"another VMI of the name has been made since":              {"new", nil, []string{"hp-old", "hp-nobody's"}, false},
		"the VMI is gone, its finalizer removed: the guest runs":   {"", map[types.UID]bool{"old": true}, []string{"hp-new", "hp-nobody's"}, true},
		"the guest of the VMI that there is runs: nothing is left": {"new", map[types.UID]bool{"old": true, "new": true}, []string{"hp-nobody's"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, wait := hotplug.Leftovers(pods, test.instance, test.guests)
			var names []string
			for _, p := range got {
				names = append(names, p.Name)
			}
			if !slices.Equal(names, test.want) || wait != test.wait {
				t.Errorf("left over are %q (wait: %v), want %q (wait: %v)", names, wait, test.want, test.wait)
			}
		})
	}
}
