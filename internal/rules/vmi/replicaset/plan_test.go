package replicaset

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var match = map[string]string{"app": "set"}

func newSet(replicas int32) *v1.VirtualMachineInstanceReplicaSet {
	return &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "ns", UID: "set-uid"},
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: match},
			Template: &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: match}},
		},
	}
}

// member returns the replica with a number.
func member(number int, edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	rs := newSet(0)
	vmi := newReplica(rs, replicaName(rs, number))
	vmi.UID = types.UID(vmi.Name)
	for _, e := range edits {
		e(vmi)
	}
	return vmi
}

func ended(phase v1.VirtualMachineInstancePhase, ago time.Duration, ran bool) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		times := &vmi.Status.PhaseTransitionTimestamps
		if ran {
			*times = append(*times, v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: v1.Running})
		}
		*times = append(*times, v1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ago))})
		vmi.Status.Phase = phase
	}
}

func readySince(ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	}
}

// unready makes a guest not Ready, for a reason.
func unready(reason string) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Phase = v1.Running
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason}}
	}
}

func goneSoon(vmi *v1.VirtualMachineInstance)  { vmi.DeletionTimestamp = &metav1.Time{Time: now} }
func relabeled(vmi *v1.VirtualMachineInstance) { vmi.Labels = nil }
func free(vmi *v1.VirtualMachineInstance)      { vmi.OwnerReferences = nil }

func names(vmis []*v1.VirtualMachineInstance) string {
	out := ""
	for _, vmi := range vmis {
		for number := range 10 {
			if vmi.Name == replicaName(newSet(0), number) {
				out += fmt.Sprint(number)
			}
		}
	}
	return out
}

func TestDecide(t *testing.T) {
	type vmis = []*v1.VirtualMachineInstance
	paused := newSet(2)
	paused.Spec.Paused = true
	deleting := newSet(2)
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	one := newSet(0)
	one.Spec.Replicas = nil
	tests := map[string]struct {
		rs                             *v1.VirtualMachineInstanceReplicaSet
		vmis                           vmis
		create, remove, adopt, release string
		after                          time.Duration
		replicas                       int32
	}{
		"too few: the lowest numbers that are free":       {rs: newSet(3), vmis: vmis{member(1)}, create: "02", replicas: 1},
		"no number is one":                                {rs: one, create: "0"},
		"enough":                                          {rs: newSet(1), vmis: vmis{member(4)}, replicas: 1},
		"too many: what is not ready goes first":          {rs: newSet(1), vmis: vmis{member(0, readySince(time.Hour)), member(1)}, remove: "1", replicas: 2},
		"too many: then the youngest":                     {rs: newSet(1), vmis: vmis{member(0, readySince(time.Hour)), member(1, readySince(time.Minute))}, remove: "1", replicas: 2},
		"one that is being deleted does not count":        {rs: newSet(1), vmis: vmis{member(0, goneSoon)}, create: "1"},
		"one that has ended is replaced":                  {rs: newSet(1), vmis: vmis{member(0, ended(v1.Succeeded, 0, true))}, remove: "0", create: "1"},
		"one that crashed is replaced at once":            {rs: newSet(1), vmis: vmis{member(0, ended(v1.Failed, 0, true))}, remove: "0", create: "1"},
		"one that never ran is replaced after a pause":    {rs: newSet(1), vmis: vmis{member(0, ended(v1.Failed, 4*time.Second, false))}, after: 6 * time.Second},
		"and then it is":                                  {rs: newSet(1), vmis: vmis{member(0, ended(v1.Failed, time.Minute, false))}, remove: "0", create: "1"},
		"one that lost its labels is let go and replaced": {rs: newSet(1), vmis: vmis{member(0, relabeled)}, release: "0", create: "1"},
		"one that has the labels and no owner is adopted": {rs: newSet(1), vmis: vmis{member(7, free)}, adopt: "7", replicas: 1},
		"one whose pod is being deleted is replaced":      {rs: newSet(1), vmis: vmis{member(0, unready(v1.PodTerminatingReason))}, create: "1"},
		"one whose pod was deleted by force is replaced":  {rs: newSet(1), vmis: vmis{member(0, unready(v1.PodNotExistsReason))}, create: "1"},
		"one whose node does not answer keeps its place":  {rs: newSet(1), vmis: vmis{member(0, unready("NodeLost"))}, replicas: 1},
		"paused: nothing is made or deleted":              {rs: paused, vmis: vmis{member(0, ended(v1.Succeeded, 0, true))}},
		"deleted: the garbage collector's":                {rs: deleting, vmis: vmis{member(0)}, replicas: 1},
	}
	selector := labels.SelectorFromSet(match)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var cached vmis
			for _, vmi := range test.vmis {
				cached = append(cached, vmi.DeepCopy())
			}
			p := Decide(test.rs, selector, test.vmis, now)
			if diff := cmp.Diff(cached, test.vmis); diff != "" {
				t.Errorf("the cache's own objects were changed:\n%s", diff)
			}
			if names(p.Create) != test.create || names(p.Remove) != test.remove || names(p.Adopt) != test.adopt || names(p.Release) != test.release {
				t.Errorf("create %s, remove %s, adopt %s, release %s", names(p.Create), names(p.Remove), names(p.Adopt), names(p.Release))
			}
			if p.After != test.after || p.Status.Replicas != test.replicas {
				t.Errorf("after %s, replicas %d; want %s, %d", p.After, p.Status.Replicas, test.after, test.replicas)
			}
		})
	}
}

func TestATurnIsBounded(t *testing.T) {
	members := func(n int) []*v1.VirtualMachineInstance {
		var out []*v1.VirtualMachineInstance
		for number := range n {
			out = append(out, member(number))
		}
		return out
	}
	finished := members(40)
	for _, vmi := range finished {
		ended(v1.Succeeded, 0, true)(vmi)
	}
	for name, test := range map[string]struct {
		replicas       int32
		vmis           []*v1.VirtualMachineInstance
		create, remove int
		after          time.Duration
	}{
		"as many as a number can say": {replicas: math.MaxInt32, vmis: members(3), create: batch, after: batchPause},
		"one more than a batch":       {replicas: batch + 1, create: batch, after: batchPause},
		"a batch":                     {replicas: batch, create: batch},
		"far too many":                {replicas: 0, vmis: members(60), remove: batch, after: batchPause},
		"a batch too many":            {replicas: 0, vmis: members(batch), remove: batch},
		"many that have ended":        {replicas: 40, vmis: finished, create: batch, remove: batch, after: batchPause},
		"fewer than none":             {replicas: -7, vmis: members(2), remove: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(newSet(test.replicas), labels.SelectorFromSet(match), test.vmis, now)
			if len(p.Create) != test.create || len(p.Remove) != test.remove || p.After != test.after {
				t.Errorf("creates %d, removes %d, looks again after %s; want %d, %d, %s",
					len(p.Create), len(p.Remove), p.After, test.create, test.remove, test.after)
			}
		})
	}
}

func TestManyFailuresAreCounted(t *testing.T) {
	var failures []error
	for number := range 9 {
		failures = append(failures, nil, fmt.Errorf("creating VMI %d: no quota", number))
	}
	want := "9 VMIs could not be changed, for example: creating VMI 0: no quota\ncreating VMI 1: no quota\ncreating VMI 2: no quota"
	if got := Failure(failures); got == nil || got.Error() != want {
		t.Errorf("%v; want %s", got, want)
	}
	if got := Failure([]error{nil, nil}); got != nil {
		t.Errorf("without a failure: %v", got)
	}
	reported := (&Plan{}).Reported(errors.New(strings.Repeat("no quota ", 1000)), now)
	if n := len(reported.Conditions[0].Message); n > 2000 {
		t.Errorf("the condition has %d bytes", n)
	}
}

func TestNoOldViewMakesOneTooMany(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		wanted := rapid.IntRange(0, 5).Draw(t, "replicas")
		rs := newSet(int32(wanted))
		stored := map[string]*v1.VirtualMachineInstance{}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			// The cache may lack any of the stored replicas.
			var seen []*v1.VirtualMachineInstance
			for number := range 12 {
				vmi := stored[replicaName(rs, number)]
				if vmi != nil && rapid.Bool().Draw(t, "seen") {
					seen = append(seen, vmi)
				}
			}
			for _, vmi := range Decide(rs, labels.SelectorFromSet(match), seen, now).Create {
				if stored[vmi.Name] == nil {
					stored[vmi.Name] = vmi
				}
			}
			if len(stored) > wanted {
				t.Fatalf("%d replicas instead of %d", len(stored), wanted)
			}
		}
	})
}

func TestAFailureIsReportedWhileItLasts(t *testing.T) {
	failed := func(status v1.VirtualMachineInstanceReplicaSetStatus) string {
		for _, c := range status.Conditions {
			if c.Type == v1.VirtualMachineInstanceReplicaSetReplicaFailure {
				return string(c.Status) + " " + c.Reason + ": " + c.Message
			}
		}
		return ""
	}
	p := Plan{Status: v1.VirtualMachineInstanceReplicaSetStatus{Replicas: 2}}
	p.Status = p.Reported(errors.New("no quota"), now)
	if got := failed(p.Status); got != "True FailedCreate: no quota" || p.Status.Replicas != 2 {
		t.Errorf("after a failure: %q, %d replicas", got, p.Status.Replicas)
	}
	if got := failed(p.Reported(nil, now)); got != "" || failed(p.Status) == "" {
		t.Errorf("after a success: %q, and the plan's own has %q", got, failed(p.Status))
	}
}
