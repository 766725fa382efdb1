package maintenance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

const (
	reasonWaiting    = "Waiting"
	reasonLocked     = "Locked"
	reasonBystanders = "MaintenanceBystanders"
)

// apply reports whether to look again at once.
func (r *Reconciler) apply(ctx context.Context, o maintenance.Observed, plan maintenance.Plan) (again bool, err error) {
	done, err := r.executeStep(ctx, o, plan)
	if err != nil && plan.Step == maintenance.Provision {
		// The waiting pods get the reason for the missing provisioning pod.
		for _, w := range plan.Waits {
			if w.First {
				w.Why += "; " + err.Error()
			}
			if err := r.reportWait(ctx, o.Machine, w); err != nil {
				return false, err
			}
		}
		return false, err
	}
	if err != nil || !done {
		return err == nil, err
	}
	r.emitEvents(o.Machine, plan.Pod, plan.Event)
	for _, w := range plan.Waits {
		if err := r.reportWait(ctx, o.Machine, w); err != nil {
			return false, err
		}
	}
	if plan.Step == maintenance.Lift { // the pod need not wait for the warning
		r.warnOfBystanders(ctx, o.Machine, plan.Pod)
	}
	return plan.Step.Again(), nil
}

// executeStep reports false if another writer was faster.
func (r *Reconciler) executeStep(ctx context.Context, o maintenance.Observed, plan maintenance.Plan) (done bool, err error) {
	switch plan.Step {
	case maintenance.Lock, maintenance.Open, maintenance.Unlock, maintenance.Forget:
		written, err := versioned.Write(ctx, r.Client, "to "+string(plan.Step)+" for maintenance:", o.Machine, plan.Machine)
		return written != nil, err
	case maintenance.Lift:
		if done, err = r.changePod(ctx, plan, lock.Ungate); err == nil && done && podstatus.Condition(plan.Pod, layout.MaintenanceLockCondition) != nil {
			// The pod had to wait.
			err = r.report(ctx, plan.Pod, corev1.PodCondition{Type: layout.MaintenanceLockCondition, Status: corev1.ConditionTrue, Reason: reasonLocked, Message: "the disks are locked for the pod"})
		}
		return done, err
	case maintenance.LetGo:
		return r.changePod(ctx, plan, lock.LetGo)
	case maintenance.Delete:
		_, err = deletion.Exact(ctx, r.Client, plan.Pod, "the maintenance pod")
	case maintenance.Evict:
		if done, err = r.changePod(ctx, plan, lock.LetGo); err == nil && done {
			_, err = deletion.Exact(ctx, r.Client, plan.Pod, "the maintenance pod", client.GracePeriodSeconds(0))
		}
		return done, err
	case maintenance.Provision:
		err = r.provision(ctx, o.Machine, plan)
	case maintenance.Unprovision:
		_, err = deletion.Exact(ctx, r.Client, plan.Pod, "the provisioning pod")
	case maintenance.Rest:
	}
	return err == nil, err
}

func (r *Reconciler) changePod(ctx context.Context, plan maintenance.Plan, change func(*corev1.Pod)) (bool, error) {
	to := plan.Pod.DeepCopy()
	change(to)
	written, err := versioned.Write(ctx, r.Client, "to "+string(plan.Step)+":", plan.Pod, to)
	return written != nil, err
}

// reportWait writes the reason for waiting to a pod, and emits events when that of the first waiting pod changes.
func (r *Reconciler) reportWait(ctx context.Context, m lock.Machine, w maintenance.Wait) error {
	if c := podstatus.Condition(w.Pod, layout.MaintenanceLockCondition); c != nil && c.Message == w.Why {
		return nil
	}
	if err := r.report(ctx, w.Pod, corev1.PodCondition{Type: layout.MaintenanceLockCondition, Status: corev1.ConditionFalse, Reason: reasonWaiting, Message: w.Why}); err != nil {
		return err
	}
	if w.First {
		r.emitEvents(m, w.Pod, &maintenance.Event{Reason: "MaintenanceWaiting", Message: fmt.Sprintf("the maintenance pod %s waits: %s", w.Pod.Name, w.Why)})
	}
	return nil
}

func (r *Reconciler) report(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	c.LastTransitionTime.Time = r.Now()
	from := &corev1.Pod{}
	from.Namespace, from.Name, from.UID = pod.Namespace, pod.Name, pod.UID
	to := from.DeepCopy()
	to.Status.Conditions = []corev1.PodCondition{c}
	err := r.Client.Status().Patch(ctx, to, client.StrategicMergeFrom(from))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reporting on the pod %s/%s whether it has the lock: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (r *Reconciler) emitEvents(m lock.Machine, pod *corev1.Pod, e *maintenance.Event) {
	if e == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	if m != nil {
		var related runtime.Object
		if pod != nil {
			related = pod
		}
		r.Recorder.Eventf(m, related, kind, e.Reason, "Maintain", "%s", e.Message)
	}
	if pod != nil {
		r.Recorder.Eventf(pod, nil, kind, e.Reason, "Maintain", "%s", e.Message)
	}
}

// warnOfBystanders warns of users' pods on the claims, which the lock does not stop. A failure does not affect the lock.
func (r *Reconciler) warnOfBystanders(ctx context.Context, m lock.Machine, pod *corev1.Pod) {
	claims := maintenance.Claims(m, pod)
	names, err := pagedlist.Collect(ctx, r.Reader, &corev1.PodList{}, func(other *corev1.Pod) (string, bool) {
		return other.Name, len(maintenance.Bystanders(claims, []corev1.Pod{*other})) > 0
	}, client.InNamespace(m.GetNamespace()))
	if err != nil {
		err = fmt.Errorf("asking for other pods on the claims: %w", err)
		ctrl.LoggerFrom(ctx).Error(err, "looking for pods that use the disks without the lock")
		return
	}
	if len(names) > 0 {
		r.emitEvents(m, pod, &maintenance.Event{Warning: true, Reason: reasonBystanders, Message: fmt.Sprintf(
			"these pods use claims of the machine or of the pod and are kept from nothing: %s", strings.Join(names, ", "))})
	}
}
