package evacuation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

func TestABudgetIsThereWhileAVMINeedsIt(t *testing.T) {
	right, altered := Budget("ns"), Budget("ns")
	altered.Spec.MinAvailable = new(intstr.FromInt32(0))
	for name, c := range map[string]struct {
		needed bool
		budget *policyv1.PodDisruptionBudget
		idle   time.Duration
		step   BudgetStep
		after  time.Duration
	}{
		"a VMI needs it and there is none":         {needed: true, step: BudgetMake},
		"a VMI needs it and it is there":           {needed: true, budget: right, idle: time.Hour},
		"a VMI needs it and somebody changed it":   {needed: true, budget: altered, step: BudgetRestore},
		"nobody needs it and there is none":        {idle: time.Hour},
		"nobody needs it since a moment ago":       {budget: right, idle: time.Minute, after: 4 * time.Minute},
		"nobody has needed it for some time":       {budget: right, idle: 5 * time.Minute, step: BudgetDelete},
		"nobody needs it, and somebody changed it": {budget: altered, idle: 5 * time.Minute, step: BudgetDelete},
	} {
		if step, after := DecideBudget(c.needed, c.budget, noon.Add(-c.idle), noon); step != c.step || after != c.after {
			t.Errorf("%s: step %d, looks again after %v; want %d, %v", name, step, after, c.step, c.after)
		}
	}
}

func TestWhichVMIsNeedABudget(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1.VirtualMachineInstance)
		want bool
	}{
		"one that migrates":                  {func(*v1.VirtualMachineInstance) {}, true},
		"one that somebody else looks after": {func(v *v1.VirtualMachineInstance) { *v.Spec.EvictionStrategy = external }, true},
		"one that is not scheduled yet":      {func(v *v1.VirtualMachineInstance) { v.Status = v1.VirtualMachineInstanceStatus{} }, true},
		"one that may be stopped":            {func(v *v1.VirtualMachineInstance) { *v.Spec.EvictionStrategy = none }, false},
		"one that says nothing":              {func(v *v1.VirtualMachineInstance) { v.Spec.EvictionStrategy = nil }, false},
		"one that has ended":                 {func(v *v1.VirtualMachineInstance) { v.Status.Phase = v1.Failed }, false},
		"one that is being deleted":          {func(v *v1.VirtualMachineInstance) { v.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		vmi := newScene(always).vmi
		if c.edit(vmi); NeedsBudget(vmi) != c.want {
			t.Errorf("%s: needs a budget: %v", name, !c.want)
		}
	}
}

// A budget must cover the launcher pods and target pods of guests that must not be evicted, and no others.
func TestWhichPodsTheBudgetIsFor(t *testing.T) {
	selector, err := metav1.LabelSelectorAsSelector(Budget("ns").Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	render := func(strategy v1.EvictionStrategy, edit func(*v1.VirtualMachineInstance)) *corev1.Pod {
		vmi := newScene(strategy).vmi
		vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
		if edit != nil {
			edit(vmi)
		}
		pod, err := launcherpod.Render(vmi, clusterconfig.FromKubeVirt(nil), "image", launcherpod.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	users := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-users", Labels: map[string]string{launcherpod.KeptLabel: ""}}}
	forged := func(v *v1.VirtualMachineInstance) { v.Labels = map[string]string{launcherpod.KeptLabel: ""} }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"of a guest that migrates":                  {render(always, nil), true},
		"of one that migrates if possible":          {render(ifPossible, nil), true},
		"of one that somebody else looks after":     {render(external, nil), true},
		"of one that may be stopped":                {render(none, nil), false},
		"of one that may be stopped, by its labels": {render(none, forged), false},
		"a user's": {users, false},
	} {
		if got := selector.Matches(labels.Set(c.pod.Labels)); got != c.want {
			t.Errorf("the pod %s: selected: %v", name, got)
		}
	}
}
