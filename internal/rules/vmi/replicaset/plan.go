// Package replicaset decides which VMIs a VirtualMachineInstanceReplicaSet creates, adopts, releases and deletes, and
// its status. It must not decide whether a VMI's guest has ended: package vmistatus does.
package replicaset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// failurePause is how long a VMI that failed before its guest ran keeps its place: a permanent cause must cost few VMIs a
// minute.
const failurePause = 10 * time.Second

// A turn creates and deletes at most batch VMIs each: the unbounded number in a spec must cost no memory and delay no
// other replica set. batchPause is how long the next turn waits for an event.
const (
	batch      = 25
	batchPause = time.Second
)

// Plan has the changes to the VMIs, and the status.
type Plan struct {
	Adopt, Release, Remove, Create []*v1.VirtualMachineInstance
	Status                         v1.VirtualMachineInstanceReplicaSetStatus
	After                          time.Duration
}

// Decide returns the plan. vmis are all VMIs of the namespace, whoever owns them.
//
// Replicas' names follow from the replica set's UID and the lowest free numbers. So a creation that is repeated because of
// a late cache fails by the name, and there are never more replicas than requested.
func Decide(rs *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmis []*v1.VirtualMachineInstance, now time.Time) Plan {
	var p Plan
	active := p.sort(rs, selector, vmis, now)
	p.Status = status(rs, selector, active, now)
	if rs.DeletionTimestamp != nil {
		return Plan{Status: p.Status}
	}
	if rs.Spec.Paused {
		p.Remove, p.After = nil, 0
		return p
	}
	wanted := 1
	if rs.Spec.Replicas != nil {
		wanted = max(0, int(*rs.Spec.Replicas))
	}
	// A failed VMI that is kept also keeps its place.
	missing := wanted - len(active) - p.waiting(vmis, rs)
	switch {
	case missing > 0:
		p.Create = newReplicas(rs, vmis, min(missing, batch))
	case len(active) > wanted:
		slices.SortFunc(active, dispensable)
		p.Remove = append(p.Remove, active[:len(active)-wanted]...)
	}
	if missing > batch || len(p.Remove) > batch {
		p.Remove = p.Remove[:min(len(p.Remove), batch)]
		p.After = backoff.Sooner(p.After, batchPause)
	}
	return p
}

// sort returns the VMIs that count as replicas.
func (p *Plan) sort(rs *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmis []*v1.VirtualMachineInstance, now time.Time) []*v1.VirtualMachineInstance {
	var active []*v1.VirtualMachineInstance
	for _, vmi := range vmis {
		owned := metav1.IsControlledBy(vmi, rs)
		matches := selector.Matches(labels.Set(vmi.Labels))
		switch {
		case vmi.DeletionTimestamp != nil:
		case owned && !matches:
			p.Release = append(p.Release, vmi)
		case owned && vmi.IsFinal():
			if left := pauseLeft(vmi, now); left > 0 {
				p.After = backoff.Sooner(p.After, left)
			} else {
				p.Remove = append(p.Remove, vmi)
			}
		case owned && vmistatus.Interrupted(vmi):
			// Its guest ends, and another replica takes its place now.
		case owned:
			active = append(active, vmi)
		case matches && metav1.GetControllerOf(vmi) == nil && !vmi.IsFinal() && !vmistatus.Interrupted(vmi):
			p.Adopt = append(p.Adopt, vmi)
			active = append(active, vmi)
		}
	}
	return active
}

func (p *Plan) waiting(vmis []*v1.VirtualMachineInstance, rs *v1.VirtualMachineInstanceReplicaSet) int {
	n := 0
	for _, vmi := range vmis {
		if metav1.IsControlledBy(vmi, rs) && vmi.IsFinal() && vmi.DeletionTimestamp == nil &&
			!slices.Contains(p.Remove, vmi) && !slices.Contains(p.Release, vmi) {
			n++
		}
	}
	return n
}

func pauseLeft(vmi *v1.VirtualMachineInstance, now time.Time) time.Duration {
	if vmi.Status.Phase != v1.Failed {
		return 0
	}
	var failed time.Time
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		switch t.Phase {
		case v1.Running:
			return 0
		case v1.Failed:
			failed = t.PhaseTransitionTimestamp.Time
		}
	}
	return max(0, failed.Add(failurePause).Sub(now))
}

// dispensable orders VMIs for removal: first those that are not ready, then the youngest.
func dispensable(a, b *v1.VirtualMachineInstance) int {
	if ra, rb := isReady(a), isReady(b); ra != rb {
		if rb {
			return -1
		}
		return 1
	}
	if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
		return order
	}
	return strings.Compare(a.Name, b.Name)
}

func isReady(vmi *v1.VirtualMachineInstance) bool {
	return condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
}

func newReplicas(rs *v1.VirtualMachineInstanceReplicaSet, vmis []*v1.VirtualMachineInstance, n int) []*v1.VirtualMachineInstance {
	taken := make(map[string]bool, len(vmis))
	for _, vmi := range vmis {
		taken[vmi.Name] = true
	}
	out := make([]*v1.VirtualMachineInstance, 0, n)
	for number := 0; len(out) < n; number++ {
		name := replicaName(rs, number)
		if taken[name] {
			continue
		}
		taken[name] = true
		out = append(out, newReplica(rs, name))
	}
	return out
}

func newReplica(rs *v1.VirtualMachineInstanceReplicaSet, name string) *v1.VirtualMachineInstance {
	template := rs.Spec.Template.DeepCopy()
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: rs.Namespace,
			Labels: template.ObjectMeta.Labels, Annotations: template.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, v1.VirtualMachineInstanceReplicaSetGroupVersionKind)},
			Finalizers:      []string{v1.VirtualMachineInstanceFinalizer},
		},
		Spec: template.Spec,
	}
}

func replicaName(rs *v1.VirtualMachineInstanceReplicaSet, number int) string {
	return layout.ReplicaName(rs.Name, fmt.Sprintf("%s/%d", rs.UID, number))
}

const quoted = 3

// Failure joins the failures of a turn. Of many it quotes the first ones.
func Failure(failures []error) error {
	failures = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	if len(failures) <= quoted {
		return errors.Join(failures...)
	}
	return fmt.Errorf("%d VMIs could not be changed, for example: %w", len(failures), errors.Join(failures[:quoted]...))
}

// Reported returns the plan's status after its execution. failure is nil if that succeeded.
func (p *Plan) Reported(failure error, now time.Time) v1.VirtualMachineInstanceReplicaSetStatus {
	out := *p.Status.DeepCopy()
	if failure != nil {
		condition.Set(&out.Conditions, trueCondition(v1.VirtualMachineInstanceReplicaSetReplicaFailure, "FailedCreate", objectevent.Fit(failure.Error())), now)
	} else {
		condition.Drop(&out.Conditions, v1.VirtualMachineInstanceReplicaSetReplicaFailure)
	}
	return out
}

func status(rs *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, active []*v1.VirtualMachineInstance, now time.Time) v1.VirtualMachineInstanceReplicaSetStatus {
	out := *rs.Status.DeepCopy()
	out.Replicas, out.ReadyReplicas = int32(len(active)), 0
	for _, vmi := range active {
		if isReady(vmi) {
			out.ReadyReplicas++
		}
	}
	out.LabelSelector = selector.String()
	if rs.Spec.Paused {
		condition.Set(&out.Conditions, trueCondition(v1.VirtualMachineInstanceReplicaSetReplicaPaused, "Paused", "Controller got paused"), now)
	} else {
		condition.Drop(&out.Conditions, v1.VirtualMachineInstanceReplicaSetReplicaPaused)
	}
	return out
}

func trueCondition(kind v1.VirtualMachineInstanceReplicaSetConditionType, reason, message string) v1.VirtualMachineInstanceReplicaSetCondition {
	return v1.VirtualMachineInstanceReplicaSetCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}
