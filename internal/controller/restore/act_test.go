package restore

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// shell returns the loop with an API server that refuses claims with this error, unless it is nil, and a restore.
func shell(t *testing.T, refusal error) (*Reconciler, *snapshotv1.VirtualMachineRestore, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, snapshotv1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r1", Finalizers: []string{restore.Finalizer}},
		Spec:       snapshotv1.VirtualMachineRestoreSpec{Target: corev1.TypedLocalObjectReference{Name: "vm"}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(r).WithStatusSubresource(r).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if refusal != nil {
				return refusal
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	return &Reconciler{Client: c, Reader: c, Recorder: recorder, Now: time.Now}, r, recorder
}

func saying(r *snapshotv1.VirtualMachineRestore, reason, message string, step restore.Step) restore.Plan {
	to := r.DeepCopy()
	to.Status = &snapshotv1.VirtualMachineRestoreStatus{}
	for _, c := range []snapshotv1.Condition{
		{Type: snapshotv1.ConditionProgressing, Status: corev1.ConditionTrue, Reason: reason, Message: message},
		{Type: snapshotv1.ConditionReady, Status: corev1.ConditionFalse, Reason: reason, Message: message},
	} {
		condition.Set(&to.Status.Conditions, c, time.Now())
	}
	return restore.Plan{Restore: to, Step: step}
}

func told(recorder *events.FakeRecorder) (all []string) {
	for {
		select {
		case e := <-recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Another's admission webhook may refuse with any code. Its message must be in status and event, and the step be
// tried again.
func TestWhoHoldsUpARestoreIsSaid(t *testing.T) {
	const refusal = `admission webhook "w" denied the request: not today`
	for name, err := range map[string]error{"with a code of its own": apierrors.NewBadRequest(refusal), "without an answer": apierrors.NewInternalError(errorText(refusal))} {
		loop, r, recorder := shell(t, err)
		plan := saying(r, restore.ReasonInPlace, "the claims are being made", restore.MakeClaims)
		plan.Claims = []*corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}}
		if _, err := loop.apply(t.Context(), restore.Observed{Restore: r}, plan); err == nil || !strings.Contains(err.Error(), "not today") {
			t.Errorf("%s: it is not tried again: %v", name, err)
		}
		var got snapshotv1.VirtualMachineRestore
		if err := loop.Client.Get(t.Context(), client.ObjectKeyFromObject(r), &got); err != nil {
			t.Fatal(err)
		}
		if said := restore.Trouble(&got); !strings.Contains(said, "making the claim ns/claim: ") || !strings.HasSuffix(said, refusal) || restore.Failed(&got) {
			t.Errorf("%s: the status says %q", name, said)
		}
		if all := told(recorder); len(all) != 1 || !strings.HasPrefix(all[0], "Warning VirtualMachineRestoreError ") || !strings.HasSuffix(all[0], refusal) {
			t.Errorf("%s: told %q", name, all)
		}
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }

// A quota ends the restore. Clients that wait for either event must get it.
func TestAnErrorThatEndsARestoreIsTold(t *testing.T) {
	loop, r, recorder := shell(t, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "claim", errorText("exceeded quota")))
	plan := saying(r, restore.ReasonNewVM, "the claims are being made", restore.MakeClaims)
	plan.Claims = []*corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}}
	if _, err := loop.apply(t.Context(), restore.Observed{Restore: r}, plan); err != nil {
		t.Fatal(err)
	}
	all := told(recorder)
	for _, reason := range []string{"VirtualMachineRestoreFailed", "VirtualMachineRestoreError"} {
		if !slices.ContainsFunc(all, func(e string) bool {
			return strings.HasPrefix(e, "Warning "+reason+" ") && strings.Contains(e, "exceeded quota")
		}) {
			t.Errorf("told %q, and not %s", all, reason)
		}
	}
}

// KubeVirt's clients wait for VirtualMachineRestoreError where the snapshot is missing or the target is another VM, and
// for VirtualMachineRestoreFailed where the target runs.
func TestWhatHoldsUpARestoreIsTold(t *testing.T) {
	for reason, want := range map[string][]string{
		restore.ReasonWaiting:      {"Warning VirtualMachineRestoreError why"},
		restore.ReasonTargetExists: {"Warning VirtualMachineRestoreFailed why", "Warning VirtualMachineRestoreError why"},
		restore.ReasonTargetRuns:   {"Warning VirtualMachineRestoreFailed why"},
	} {
		loop, r, recorder := shell(t, nil)
		for range 2 {
			plan := saying(r, reason, "why", restore.Rest)
			if reason != restore.ReasonWaiting {
				condition.Set(&plan.Restore.Status.Conditions, snapshotv1.Condition{Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue, Reason: reason, Message: "why"}, time.Now())
			}
			if _, err := loop.apply(t.Context(), restore.Observed{Restore: r}, plan); err != nil {
				t.Fatal(err)
			}
			r = plan.Restore
		}
		if all := told(recorder); !slices.Equal(all, want) {
			t.Errorf("%s: told %q, want %q", reason, all, want)
		}
	}
}

// A target that has to be stopped must be reported once.
// A warning asks somebody to do something.
func TestATargetThatRunsIsTold(t *testing.T) {
	for policy, want := range map[snapshotv1.TargetReadinessPolicy]string{
		snapshotv1.VirtualMachineRestoreWaitEventually: "Warning RestoreTargetNotReady the VM vm runs",
		snapshotv1.VirtualMachineRestoreStopTarget:     "Normal RestoreTargetNotReady the VM vm runs",
	} {
		loop, r, recorder := shell(t, nil)
		r.Spec.TargetReadinessPolicy = &policy
		for range 2 {
			plan := saying(r, restore.ReasonTargetRuns, "the VM vm runs", restore.Rest)
			if _, err := loop.apply(t.Context(), restore.Observed{Restore: r}, plan); err != nil {
				t.Fatal(err)
			}
			r = plan.Restore
		}
		if all := told(recorder); len(all) != 1 || all[0] != want {
			t.Errorf("%s: told %q", policy, all)
		}
	}
}

// The VM must become an owner of its restore, beside others.
func TestAVMOwnsItsRestore(t *testing.T) {
	loop, r, _ := shell(t, nil)
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1"}}
	if _, err := loop.apply(t.Context(), restore.Observed{Restore: r, VM: vm}, restore.Plan{Restore: r.DeepCopy(), Step: restore.Adopt}); err != nil {
		t.Fatal(err)
	}
	var got snapshotv1.VirtualMachineRestore
	if err := loop.Client.Get(t.Context(), client.ObjectKeyFromObject(r), &got); err != nil || !metav1.IsControlledBy(&got, vm) {
		t.Errorf("%v: the owners are %+v", err, got.OwnerReferences)
	}
}
