package migration

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Time limits of a waiting migration (decision 284). KubeVirt's annotations for its own tests shorten the first two.
const (
	// unschedulableLimit is for a target pod that the scheduler can't place or the kubelet can't start.
	unschedulableLimit = 5 * time.Minute
	// pendingLimit is for a target pod that does not run. A node that pulls large images reports nothing.
	pendingLimit = 15 * time.Minute
	// preparationLimit is for the virt-handlers, from the handover until the guest's memory moves.
	preparationLimit = 5 * time.Minute
)

// preparationPatience is how long a node may take to start the target pod's container before the pod's events are read,
// every preparationInterval.
const (
	preparationPatience = 10 * time.Second
	preparationInterval = 20 * time.Second
)

// awaitTarget waits for the target pod, then hands the VMI over.
func (d *decision) awaitTarget() {
	o := &d.o
	switch {
	case o.Target == nil && !o.TargetAsked:
		d.p.Needs = NeedTarget
	case o.Target == nil:
		d.fail("the target pod %s is gone", o.TargetName)
	case !d.isTargetIntact():
		d.fail("the pod %s, which has the name of the migration's target pod, is another one, or somebody has changed it", o.Target.Name)
	case podstatus.Terminal(o.Target):
		d.fail("%s", targetEnded(o.VMI, o.Target))
	case o.Target.DeletionTimestamp != nil:
		d.fail("the target pod %s is being deleted", o.Target.Name)
	case o.Target.Spec.NodeName == o.VMI.Status.NodeName:
		d.fail("the target pod %s has come to node %s, which the guest is on already", o.Target.Name, o.Target.Spec.NodeName)
	case volumemigration.WrongClaims(o.Target, o.VMI) != "":
		d.fail("%s", volumemigration.WrongClaims(o.Target, o.VMI))
	case !d.ready():
	case o.Target.Spec.NodeName == "":
		d.awaitNode()
	case !started(o.Target):
		d.awaitContainer()
	case d.fits(true):
		d.handOver()
	}
}

// isTargetIntact reports whether the target pod is still the VMI's and this migration's.
func (d *decision) isTargetIntact() bool {
	return launcherpod.BondOf(d.o.Target, d.o.VMI) == launcherpod.Whole &&
		d.o.Target.Labels[v1.MigrationJobLabel] == string(d.o.Migration.UID)
}

func started(pod *corev1.Pod) bool {
	status := podstatus.Container(pod, layout.ComputeContainer)
	return status != nil && status.State.Running != nil
}

func (d *decision) awaitNode() {
	d.enter(v1.MigrationScheduling)
	verdict := podstatus.Condition(d.o.Target, corev1.PodScheduled)
	if verdict == nil || verdict.Status != corev1.ConditionFalse {
		d.clearWaiting()
		d.expire(d.limit(v1.MigrationPendingPodTimeoutSecondsAnnotation, pendingLimit), "the scheduler has not found a node for the target pod %s", d.o.Target.Name)
		return
	}
	message := fmt.Sprintf("the scheduler finds no node for the target pod %s: %s", d.o.Target.Name, verdict.Message)
	if added := d.o.Migration.Spec.AddedNodeSelector; len(added) > 0 {
		message += fmt.Sprintf(" (the migration's addedNodeSelector asks for %s)", labels.FormatLabels(added))
	}
	message += acceleratorAsked(d.o.VMI)
	d.wait(verdict.Reason, message)
	d.expire(d.limit(v1.MigrationUnschedulablePodTimeoutSecondsAnnotation, unschedulableLimit), "%s", message)
}

// acceleratorAsked returns the accelerator's requirement on the node, "" for none. The scheduler's message lacks it.
func acceleratorAsked(vmi *v1.VirtualMachineInstance) string {
	switch kvm, known := vmistatus.RunsWithKVM(vmi); {
	case !known:
		return ""
	case kvm:
		return fmt.Sprintf(" (the guest runs with KVM, so its node must be labeled %s=%s)", layout.KVMLabel, layout.KVMUsable)
	}
	return fmt.Sprintf(" (the guest is emulated, so its node must not be labeled %s=%s)", layout.KVMLabel, layout.KVMUsable)
}

func (d *decision) awaitContainer() {
	d.enter(v1.MigrationScheduling)
	target := d.o.Target
	if reason, message := obstacle(target); reason != "" {
		d.waitForKubelet(reason, message)
		d.expire(unschedulableLimit, "the target pod %s does not start on node %s: %s", target.Name, target.Spec.NodeName, message)
		return
	}
	limit, slow := d.limit(v1.MigrationPendingPodTimeoutSecondsAnnotation, pendingLimit), "the target pod %s does not run on node %s"
	switch at := target.CreationTimestamp.Add(preparationPatience); {
	case d.o.Now.Before(at):
		d.clearWaiting()
		d.requeueAt(at)
		d.expire(limit, slow, target.Name, target.Spec.NodeName)
	case !d.o.WarningAsked:
		d.p.Needs = NeedWarning
	case d.o.Warning == nil || !vmistatus.FromKubelet(d.o.Warning.Reason):
		d.clearWaiting()
		d.requeueAt(d.o.Now.Add(preparationInterval))
		d.expire(limit, slow, target.Name, target.Spec.NodeName)
	default:
		// Users can write events, so they don't shorten the limit.
		d.waitForKubelet(d.o.Warning.Reason, d.o.Warning.Message)
		d.requeueAt(d.o.Now.Add(preparationInterval))
		d.expire(limit, slow+": %s", target.Name, target.Spec.NodeName, d.o.Warning.Message)
	}
}

func obstacle(pod *corev1.Pod) (reason, message string) {
	waiting := podstatus.Waiting(pod, layout.ComputeContainer)
	if waiting == nil || !vmistatus.FromKubelet(waiting.Reason) {
		return "", ""
	}
	if waiting.Message == "" {
		return waiting.Reason, "the container waits: " + waiting.Reason
	}
	return waiting.Reason, waiting.Message
}

// expire ends the migration if the age of its target pod exceeds the limit, or requeues until then.
func (d *decision) expire(limit time.Duration, because string, args ...any) {
	deadline := d.o.Target.CreationTimestamp.Add(limit)
	if d.o.Now.Before(deadline) {
		d.requeueAt(deadline)
		return
	}
	d.p.After = 0
	d.fail("%s, %v after it was made", fmt.Sprintf(because, args...), limit)
}

// limit returns the usual limit, or a shorter one from an annotation in whole seconds. A longer one could delay other
// users' migrations (decision 284).
func (d *decision) limit(annotation string, usual time.Duration) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(d.o.Migration.Annotations[annotation]))
	if err != nil || seconds < 1 || seconds >= int(usual/time.Second) {
		return usual
	}
	return time.Duration(seconds) * time.Second
}

func (d *decision) overdue() string {
	ms := d.state()
	switch {
	case ms.StartTimestamp != nil, d.o.Now.Before(d.preparedUntil()):
		return ""
	case d.unattached() != "":
		return fmt.Sprintf("the hotplugged volumes (%s) have not been attached to node %s within %v: %s",
			d.unattached(), ms.TargetNode, preparationLimit, cmp.Or(d.o.Obstacle, "see their attachment pods there"))
	case ms.TargetNodeAddress == "":
		return fmt.Sprintf("virt-handler on node %s has not made the target ready within %v", ms.TargetNode, preparationLimit)
	}
	return fmt.Sprintf("virt-handler on node %s has not begun to send the guest within %v", ms.SourceNode, preparationLimit)
}

func (d *decision) preparedUntil() time.Time {
	for _, t := range d.o.Migration.Status.PhaseTransitionTimestamps {
		if t.Phase == v1.MigrationPreparingTarget {
			return t.PhaseTransitionTimestamp.Add(preparationLimit)
		}
	}
	return d.o.Now.Add(preparationLimit)
}

func targetEnded(vmi *v1.VirtualMachineInstance, target *corev1.Pod) string {
	return fmt.Sprintf("the target pod %s has ended: %s", target.Name, vmistatus.EndOfPod(vmi, target).Message)
}
