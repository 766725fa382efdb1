package podlimits

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(texts ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(texts); i += 2 {
		out[corev1.ResourceName(texts[i])] = resource.MustParse(texts[i+1])
	}
	return out
}

func quota(texts ...string) Namespace {
	return Namespace{Quotas: []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "5")}}, {Spec: corev1.ResourceQuotaSpec{Hard: list(texts...)}}}}
}

func limitRange(items ...corev1.LimitRangeItem) Namespace {
	return Namespace{Ranges: []corev1.LimitRange{{}, {Spec: corev1.LimitRangeSpec{Limits: items}}}}
}

func labeled(n Namespace, ratio string) Namespace {
	n.Labels = map[string]string{"alpha.kubevirt.io/auto-memory-limits-ratio": ratio}
	return n
}

// The container requests 200m of CPU and 100Mi, and may need up to 2 CPUs and 150Mi.
func TestLimits(t *testing.T) {
	const container, pod, claim = corev1.LimitTypeContainer, corev1.LimitTypePod, corev1.LimitTypePersistentVolumeClaim
	for name, c := range map[string]struct {
		namespace   Namespace
		cpu, memory string // "" for no limit
	}{
		"nobody asks":                             {Namespace{}, "", ""},
		"a quota on requests":                     {quota("requests.cpu", "4", "requests.memory", "4Gi", "memory", "4Gi"), "", ""},
		"a quota on limits of memory":             {quota("limits.memory", "4Gi"), "", "200Mi"},
		"a quota on limits of CPU":                {quota("limits.cpu", "4"), "2", ""},
		"a quota on both":                         {quota("limits.cpu", "4", "limits.memory", "4Gi"), "2", "200Mi"},
		"a ratio of the namespace's own":          {labeled(quota("limits.memory", "4Gi"), "3.5"), "", "350Mi"},
		"a ratio below what may be used":          {labeled(quota("limits.memory", "4Gi"), "1.2"), "", "150Mi"},
		"a ratio below 1":                         {labeled(quota("limits.memory", "4Gi"), "0.5"), "", "200Mi"},
		"a ratio that is none":                    {labeled(quota("limits.memory", "4Gi"), "NaN"), "", "200Mi"},
		"a ratio without end":                     {labeled(quota("limits.memory", "4Gi"), "Inf"), "", "200Mi"},
		"a ratio and nobody who asks":             {labeled(Namespace{}, "3"), "", ""},
		"a limit range gives enough":              {limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "200m", "memory", "100Mi")}), "", ""},
		"a limit range gives less than requested": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "199m", "memory", "99Mi")}), "2", "200Mi"},
		"the least of two counts": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "1Gi")},
			corev1.LimitRangeItem{Type: container, Default: list("memory", "64Mi"), Max: list("memory", "180Mi")}), "", "180Mi"},
		"a limit range bounds a pod":                   {limitRange(corev1.LimitRangeItem{Type: pod, Max: list("cpu", "1", "memory", "1Gi")}), "1", "200Mi"},
		"by less than what may be used":                {limitRange(corev1.LimitRangeItem{Type: pod, Max: list("memory", "120Mi")}), "", "120Mi"},
		"by less than requested":                       {limitRange(corev1.LimitRangeItem{Type: pod, Max: list("memory", "50Mi")}), "", "100Mi"},
		"by a ratio of CPU that is no whole millicore": {limitRange(corev1.LimitRangeItem{Type: pod, MaxLimitRequestRatio: list("cpu", "1.6675")}), "333m", ""},
		"by a ratio": {limitRange(corev1.LimitRangeItem{Type: pod, MaxLimitRequestRatio: list("cpu", "4", "memory", "1.5")}), "800m", "150Mi"},
		"what a limit range gives, its ratio refuses": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "8", "memory", "8Gi"),
			Max: list("cpu", "8", "memory", "8Gi"), MaxLimitRequestRatio: list("cpu", "4", "memory", "2")}), "800m", "200Mi"},
		"what a limit range gives, another's ratio refuses": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "1Gi")},
			corev1.LimitRangeItem{Type: pod, MaxLimitRequestRatio: list("memory", "1.5")}), "", "150Mi"},
		"what a limit range gives, another does not admit": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "1Gi")},
			corev1.LimitRangeItem{Type: pod, Max: list("memory", "170Mi")}), "", "170Mi"},
		"what one of two gives, a ratio refuses": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "100Mi"), MaxLimitRequestRatio: list("memory", "1.5")},
			corev1.LimitRangeItem{Type: container, Default: list("memory", "1Gi")}), "", "150Mi"},
		"what a limit range gives is within its ratio": {limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "800m", "memory", "200Mi"),
			MaxLimitRequestRatio: list("cpu", "4", "memory", "2")}), "", ""},
		"a limit range of claims":             {limitRange(corev1.LimitRangeItem{Type: claim, Max: list("memory", "1Gi"), Default: list("memory", "1Mi")}), "", ""},
		"a quota, and a limit range gives it": {Namespace{Quotas: quota("limits.memory", "4Gi").Quotas, Ranges: limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "1Gi")}).Ranges}, "", ""},
	} {
		given := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "200m", "memory", "100Mi")}}}}}
		got, set := Set(given, c.namespace, Need{CPU: resource.MustParse("2"), Memory: resource.MustParse("150Mi")})
		limits := got.Spec.Containers[0].Resources.Limits
		if set != (c.cpu+c.memory != "") || len(given.Spec.Containers[0].Resources.Limits) > 0 {
			t.Errorf("%s: limits were set: %t, and the given pod has %v", name, set, given.Spec.Containers[0].Resources.Limits)
		}
		for resourceName, want := range map[corev1.ResourceName]string{"cpu": c.cpu, "memory": c.memory} {
			limit, has := limits[resourceName]
			if has != (want != "") || has && limit.String() != want {
				t.Errorf("%s: the limit of %s is %s, want %q", name, resourceName, limit.String(), want)
			}
		}
	}
}

func TestLimitsThatAPodHasStay(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: list("cpu", "200m", "memory", "100Mi"), Limits: list("memory", "101Mi")}},
		{Resources: corev1.ResourceRequirements{Requests: list("memory", "7Mi")}},
	}}}
	got, set := Set(pod, quota("limits.cpu", "4", "limits.memory", "4Gi"), Need{})
	first, second := got.Spec.Containers[0].Resources.Limits, got.Spec.Containers[1].Resources.Limits
	if !set || first.Memory().String() != "101Mi" || first.Cpu().String() != "200m" || second.Memory().String() != "14Mi" || len(second) != 1 {
		t.Errorf("the limits are %v and %v", first, second)
	}
}

// The container requested 100m and 100Mi, and will request 400m and 400Mi.
func TestKeep(t *testing.T) {
	const container = corev1.LimitTypeContainer
	want := corev1.ResourceRequirements{Requests: list("cpu", "400m", "memory", "400Mi")}
	for name, c := range map[string]struct {
		has       corev1.ResourceList
		namespace Namespace
		want      corev1.ResourceList
	}{
		"it has none":                                   {list(), quota("limits.cpu", "4"), nil},
		"a quota has asked for them":                    {list("cpu", "1", "memory", "200Mi"), quota("limits.cpu", "4", "limits.memory", "4Gi"), list("cpu", "4", "memory", "800Mi")},
		"a limit range has given it":                    {list("cpu", "500m"), limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "500m"), Max: list("cpu", "600m")}), list("cpu", "500m")},
		"a limit range has given one that is too small": {list("cpu", "300m"), limitRange(corev1.LimitRangeItem{Type: container, Default: list("cpu", "300m"), Max: list("cpu", "600m")}), list("cpu", "600m")},
		"a limit range has given what its ratio refuses by now": {list("memory", "4Gi"),
			limitRange(corev1.LimitRangeItem{Type: container, Default: list("memory", "800Mi"), MaxLimitRequestRatio: list("memory", "2")}), list("memory", "800Mi")},
		"nobody asks any more": {list("cpu", "1", "memory", "200Mi"), Namespace{}, list("cpu", "1", "memory", "400Mi")},
	} {
		has := corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "100Mi"), Limits: c.has}
		got := Keep(has, want, c.namespace, Need{CPU: resource.MustParse("4")})
		if diff := cmp.Diff(c.want, got.Limits, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if Beside(has, want) != (len(c.has) > 0) || Beside(has, got) {
			t.Errorf("%s: limits beside what is wanted are not seen", name)
		}
		if again := Keep(got, want, c.namespace, Need{CPU: resource.MustParse("4")}); !cmp.Equal(got, again, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })) {
			t.Errorf("%s: the limits change once more, to %v", name, again.Limits)
		}
	}
}

func TestAWantedLimitIsAsWanted(t *testing.T) {
	has := corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "1")}
	want := corev1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("cpu", "2")}
	if got := Keep(has, want, quota("limits.cpu", "8"), Need{CPU: resource.MustParse("8")}); got.Limits.Cpu().String() != "2" || Beside(has, want) {
		t.Errorf("the limits are %v", got.Limits)
	}
}
