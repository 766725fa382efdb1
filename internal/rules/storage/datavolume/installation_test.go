package datavolume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestWhatCDIObjectsDo: the oldest object counts, the others must name it, and others' objects must be left alone.
func TestWhatCDIObjectsDo(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	object := func(name string, age time.Duration, edits ...func(*cdiv1.CDI)) cdiv1.CDI {
		o := cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(began.Add(-age))}}
		for _, edit := range edits {
			edit(&o)
		}
		return o
	}
	configures := func(o *cdiv1.CDI) {
		o.Spec.Config = &cdiv1.CDIConfigSpec{InsecureRegistries: []string{o.Name}}
	}
	deleted := func(o *cdiv1.CDI) { o.DeletionTimestamp = new(metav1.NewTime(began)) }
	operated := func(o *cdiv1.CDI) { o.Status.OperatorVersion = "v1.62.0" }
	const serves, beside = "Deployed v1 Available=True Progressing=False Degraded=False", "Error  Available=False Progressing=False Degraded=True"
	for name, test := range map[string]struct {
		all    []cdiv1.CDI
		config []string
		status map[string]string
	}{
		"none":                          {nil, nil, nil},
		"one":                           {[]cdiv1.CDI{object("cdi", 1, configures)}, []string{"cdi"}, map[string]string{"cdi": serves}},
		"one without a configuration":   {[]cdiv1.CDI{object("cdi", 1)}, nil, map[string]string{"cdi": serves}},
		"the older of two":              {[]cdiv1.CDI{object("a", 1, configures), object("b", 2, configures)}, []string{"b"}, map[string]string{"a": beside, "b": serves}},
		"two of one age":                {[]cdiv1.CDI{object("b", 1, configures), object("a", 1, configures)}, []string{"a"}, map[string]string{"b": beside, "a": serves}},
		"one that goes, and one beside": {[]cdiv1.CDI{object("b", 2, configures, deleted), object("a", 1, configures)}, []string{"a"}, map[string]string{"a": serves}},
		"CDI's own":                     {[]cdiv1.CDI{object("cdi", 1, configures, operated)}, nil, nil},
	} {
		got := PlanInstallation(test.all, "v1", began)
		var config []string
		if got.Config != nil {
			config = got.Config.InsecureRegistries
		}
		if !slices.Equal(config, test.config) {
			t.Errorf("%s: the CDIConfig is that of %v, want %v", name, config, test.config)
		}
		status := map[string]string{}
		for i, o := range got.Changed {
			said := fmt.Sprintf("%s %s", o.Status.Phase, o.Status.ObservedVersion)
			for _, c := range o.Status.Conditions {
				said += fmt.Sprintf(" %s=%s", c.Type, c.Status)
			}
			status[o.Name] = said
			test.all[slices.IndexFunc(test.all, func(o cdiv1.CDI) bool { return o.Name == got.Changed[i].Name })] = *o
		}
		if fmt.Sprint(status) != fmt.Sprint(test.status) && len(status)+len(test.status) > 0 {
			t.Errorf("%s: the objects say %v, want %v", name, status, test.status)
		}
		if again := PlanInstallation(test.all, "v1", began.Add(time.Hour)); len(again.Changed) > 0 {
			t.Errorf("%s: what is said already is written again: %+v", name, again.Changed[0].Status)
		}
	}
}

// TestAChangedSentenceKeepsItsTransition: another object becomes the used one. The condition of an unused object must
// keep its transition time, because only its message changes.
func TestAChangedSentenceKeepsItsTransition(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	first := cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(began)}}
	other := cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "z", CreationTimestamp: metav1.NewTime(began.Add(time.Minute))}}
	said := *PlanInstallation([]cdiv1.CDI{first, other}, "v1", began).Changed[1]
	first.Name = "b"
	again := PlanInstallation([]cdiv1.CDI{first, said}, "v1", began.Add(time.Hour)).Changed[1].Status.Conditions[0]
	if was := said.Status.Conditions[0]; again.Message == was.Message || !again.LastTransitionTime.Equal(&was.LastTransitionTime) || again.LastHeartbeatTime.Equal(&was.LastHeartbeatTime) {
		t.Errorf("the condition was %+v, and is %+v", was, again)
	}
}
