package commontypes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

type instancetypes = []*instancetypev1.VirtualMachineClusterInstancetype

// served returns objects as an API server does: encoded and decoded, with a version.
func served[T any](t *testing.T, objects []T) []T {
	t.Helper()
	text, err := json.Marshal(objects)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func namesOf[T metav1.Object](objects []T) []string {
	var out []string
	for _, object := range objects {
		out = append(out, object.GetName())
	}
	return out
}

func TestWhatIsDoneAboutTheTypesThatAreThere(t *testing.T) {
	all := len(Instancetypes())
	tests := map[string]struct {
		enabled                bool
		there                  func(instancetypes) instancetypes
		create, update, delete int
		changed, others        []string
	}{
		"nothing is there: all are created": {
			enabled: true, there: func(instancetypes) instancetypes { return nil }, create: all,
		},
		"all are there: nothing is done": {
			enabled: true, there: func(all instancetypes) instancetypes { return all },
		},
		"one was deleted: it comes back": {
			enabled: true, there: func(all instancetypes) instancetypes { return all[1:] }, create: 1,
		},
		"an earlier version wrote one otherwise: it is updated": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].Spec.CPU.Guest = 99
				seal(all[0], &all[0].Spec)
				return all
			}, update: 1,
		},
		"an earlier version had one more: it is deleted": {
			enabled: true, there: func(all instancetypes) instancetypes {
				old := all[0].DeepCopy()
				old.Name = "gn1.large"
				seal(old, &old.Spec)
				return append(all, old)
			}, delete: 1,
		},
		"somebody copied one, with its labels, under a name of his own: the copy is his": {
			enabled: true, there: func(all instancetypes) instancetypes {
				copied := all[0].DeepCopy()
				copied.Name = "my.medium"
				return append(all, copied)
			},
		},
		"somebody changed one's spec: it is left alone": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].Spec.Memory.Guest = resource.MustParse("3Gi")
				return all
			}, changed: []string{"cx1.medium"},
		},
		"somebody changed a label of Drydock's: it is left alone": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].Labels[prefix+"size"] = "tiny"
				return all
			}, changed: []string{"cx1.medium"},
		},
		"somebody added a label: that is no change": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].Labels["team"] = "a"
				return all
			},
		},
		"one is somebody else's: it is left alone": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].Labels[VendorLabel] = "example.com"
				delete(all[1].Labels, VendorLabel)
				return all
			}, others: []string{"cx1.medium", "cx1.medium1gi"},
		},
		"one of another name is somebody else's: it is nobody's business": {
			enabled: true, there: func(all instancetypes) instancetypes {
				other := all[0].DeepCopy()
				other.Name, other.Labels = "medium", nil
				return append(all, other)
			},
		},
		"one is being deleted: it is waited for": {
			enabled: true, there: func(all instancetypes) instancetypes {
				all[0].DeletionTimestamp = &metav1.Time{}
				return all
			},
		},
		"the bundle is not wanted: all go, but for one that was changed": {
			there: func(all instancetypes) instancetypes {
				all[0].Spec.CPU.Guest = 99
				return all
			}, delete: all - 1,
		},
		"the bundle is not wanted: what is somebody else's stays": {
			there: func(all instancetypes) instancetypes {
				all[0].Labels[VendorLabel] = ""
				return all[:1]
			},
		},
		"the bundle is not wanted: a copy under another name stays": {
			there: func(all instancetypes) instancetypes {
				all[0].Name = "my.medium"
				return all[:1]
			},
		},
		"the bundle is not wanted: one that is being deleted is not deleted again": {
			there: func(all instancetypes) instancetypes {
				all[0].DeletionTimestamp = &metav1.Time{}
				return all[:1]
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := PlanInstancetypes(test.enabled, test.there(served(t, Instancetypes())))
			got := []int{len(plan.Create), len(plan.Update), len(plan.Delete)}
			if diff := cmp.Diff([]int{test.create, test.update, test.delete}, got); diff != "" {
				t.Errorf("created, updated, deleted:\n%s", diff)
			}
			if diff := cmp.Diff(test.changed, plan.Changed); diff != "" {
				t.Errorf("left as they were changed:\n%s", diff)
			}
			if diff := cmp.Diff(test.others, plan.Others); diff != "" {
				t.Errorf("left as others made them:\n%s", diff)
			}
		})
	}
}

// An update must keep the fields of others, and the next plan must have no update.
func TestAnUpdate(t *testing.T) {
	old := served(t, Preferences())
	old[0].Spec.Devices.PreferredDiskBus = "sata"
	old[0].Labels[prefix+"gone"], old[0].ResourceVersion = "x", "7"
	seal(old[0], &old[0].Spec)
	old[0].Labels["team"], old[0].Annotations["note"] = "a", "b"
	plan := PlanPreferences(true, old)
	if diff := cmp.Diff([]string{"alpine"}, namesOf(plan.Update)); diff != "" {
		t.Fatal(diff)
	}
	updated := plan.Update[0]
	if updated.Spec.Devices.PreferredDiskBus != "virtio" || updated.ResourceVersion != "7" {
		t.Errorf("%+v", updated)
	}
	want := Preferences()[0]
	want.Labels["team"], want.Annotations["note"] = "a", "b"
	if diff := cmp.Diff(want.Labels, updated.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want.Annotations, updated.Annotations); diff != "" {
		t.Error(diff)
	}
	again := PlanPreferences(true, served(t, old))
	if n := len(again.Create) + len(again.Update) + len(again.Delete) + len(again.Changed); n != 0 {
		t.Errorf("the next plan has %d steps", n)
	}
}

func TestWhatIsSaidOfThoseThatAreLeft(t *testing.T) {
	const then = "; delete those that are to be as they come with Drydock"
	tests := map[string]struct {
		plan Plan[metav1.Object]
		want string
	}{
		"nothing is left":         {},
		"one was changed":         {plan: Plan[metav1.Object]{Changed: []string{"u1.nano"}}, want: "left as somebody has changed them: u1.nano" + then},
		"two are somebody else's": {plan: Plan[metav1.Object]{Others: []string{"a", "b"}}, want: "left as others have made them: a, b" + then},
		"ten": {plan: Plan[metav1.Object]{Others: strings.Split("a b c d e f g h i j", " ")},
			want: "left as others have made them: a, b, c, d, e, f, g, h, i, j" + then},
		"twelve": {plan: Plan[metav1.Object]{Others: strings.Split("a b c d e f g h i j k l", " ")},
			want: "left as others have made them: a, b, c, d, e, f, g, h, i, j and 2 more" + then},
		"both": {plan: Plan[metav1.Object]{Changed: []string{"a"}, Others: []string{"b"}},
			want: "left as somebody has changed them: a; left as others have made them: b" + then},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.plan.Left(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
