package vmicontroller

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const waitingForNode = "waiting for a node for the launcher pod"

// startChecks bring a VMI without a guest to Scheduled. The first one that applies decides.
var startChecks = []struct {
	name    string
	applies func(*decision) bool
	then    func(*decision)
}{
	// A read is cheaper than a creation that fails.
	{"the pod is not shown although it was made",
		func(d *decision) bool {
			return d.o.Pod == nil && !d.o.PodAsked && d.o.VMI.Status.Phase == v1.Scheduling
		},
		func(d *decision) { d.p.Needs = NeedPod }},
	{"the disks are not sure yet",
		func(d *decision) bool { return d.p.Disks.Confirm },
		nothing},
	// Otherwise the scheduler would count the resources of both pods.
	{"the provisioning pod has to go first",
		func(d *decision) bool {
			return d.o.Pod == nil && d.p.Disks.State == placement.Clear && d.o.Provisioning != nil
		},
		nothing},
	{"the claim of the VM's state is not the VM's",
		func(d *decision) bool { return d.o.Pod == nil && d.checkState() != nil },
		(*decision).awaitState},
	// An absent claim was read from the API server.
	{"the claim of the VM's state is not there",
		func(d *decision) bool {
			return d.o.Pod == nil && stateclaim.ClaimName(d.o.VMI) != "" && d.stateClaim() == nil
		},
		(*decision).createState},
	{"the disks are not ready",
		func(d *decision) bool { return d.o.Pod == nil && d.p.Disks.State != placement.Clear },
		(*decision).awaitDisks},
	{"whether another guest is in the way has not been asked",
		func(d *decision) bool { return d.o.Pod == nil && !d.o.RivalsAsked },
		func(d *decision) { d.p.Needs = NeedRivals }},
	{"another guest is in the way",
		func(d *decision) bool { return d.o.Pod == nil && len(d.o.Rivals) > 0 },
		(*decision).awaitRivals},
	{"there is no pod",
		func(d *decision) bool { return d.o.Pod == nil },
		(*decision).createPod},
	{"a pod of somebody else's has the name",
		func(d *decision) bool { return d.bond() == launcherpod.Foreign },
		(*decision).reportTaken},
	{"somebody has changed the pod",
		func(d *decision) bool { return d.bond() == launcherpod.Damaged },
		func(d *decision) {
			d.p.DeletePod = d.o.Pod.DeletionTimestamp == nil
			d.awaitPodsEnd()
		}},
	// Its successor has the same name and must wait.
	{"the pod is being deleted",
		func(d *decision) bool { return d.o.Pod.DeletionTimestamp != nil },
		(*decision).awaitPodsEnd},
	{"the pod has finished",
		func(d *decision) bool { return podstatus.Terminal(d.o.Pod) },
		func(d *decision) { d.facts.End = vmistatus.EndOfPod(d.o.VMI, d.o.Pod) }},
	{"the pod has no node",
		func(d *decision) bool { return d.o.Pod.Spec.NodeName == "" },
		(*decision).awaitNode},
	{"whether another guest uses a claim of its own, or something fills one, has not been asked",
		func(d *decision) bool {
			return !d.o.RivalsAsked && len(launcherpod.StartClaims(d.o.VMI)) > 0
		},
		func(d *decision) { d.p.Needs = NeedRivals }},
	{"another guest uses a claim of its own, or something fills one",
		func(d *decision) bool { return len(d.o.Rivals) > 0 },
		(*decision).yieldOrWait},
	{"whether the VM is locked has not been asked",
		func(d *decision) bool { return !d.o.VMAsked },
		func(d *decision) { d.p.Needs = NeedVM }},
	{"the VM is locked",
		func(d *decision) bool { return d.locked() },
		(*decision).awaitUnlock},
	{"the pod has a node", func(*decision) bool { return true }, (*decision).handOver},
}

func nothing(*decision) {}

func (d *decision) bond() launcherpod.Bond { return launcherpod.BondOf(d.o.Pod, d.o.VMI) }

// An outdated cache does no harm: a second creation fails by the pod's name.
func (d *decision) createPod() {
	d.p.CreatePod = true
	d.reportDisksReady()
	d.facts.Obstacle = none
	d.facts.Wait.Phase, d.facts.Wait.For = v1.Scheduling, waitingForNode
	d.unreported = schedulerPatience
}

var none = vmistatus.Known[*vmistatus.Obstacle](nil)

func (d *decision) awaitPodsEnd() {
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Wait.For = fmt.Sprintf("waiting for the launcher pod %s to go before it is made again", d.o.Pod.Name)
}

func (d *decision) awaitNode() {
	verdict := verdictOn(d.o.Pod)
	d.facts.Obstacle = none
	d.facts.Wait.Phase, d.facts.Wait.For = v1.Scheduling, waitingForNode
	d.facts.Wait.Unscheduled = vmistatus.Known(verdict)
	if pending := placement.Unbound(d.o.Claims); verdict != nil && len(pending) > 0 {
		d.facts.Wait.For += "; these claims are not bound yet: " + strings.Join(pending, ", ")
	}
	if podstatus.Condition(d.o.Pod, corev1.PodScheduled) == nil {
		d.unreported = d.o.Pod.CreationTimestamp.Add(schedulerPatience).Sub(d.o.Now)
	}
}

func verdictOn(pod *corev1.Pod) *vmistatus.Obstacle {
	verdict := podstatus.Condition(pod, corev1.PodScheduled)
	if verdict == nil || verdict.Status != corev1.ConditionFalse {
		return nil
	}
	message := verdict.Message
	if strings.Contains(message, layout.ResourceKVM) {
		message += kvmHint
	}
	return &vmistatus.Obstacle{Reason: verdict.Reason, Message: message}
}

// The scheduler's message reads as if the nodes were full.
const kvmHint = " (a node offers " + layout.ResourceKVM + " when its KVM has run a guest, see the node's label " + layout.KVMLabel +
	" and its events; with developerConfiguration.useEmulation in the KubeVirt object guests are emulated where it has not)"

func (d *decision) handOver() {
	pod := d.o.Pod
	h := &vmistatus.HandOver{
		Pod: pod.UID, Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time, User: layout.QEMUUser,
		QOS: cmp.Or(pod.Status.QOSClass, corev1.PodQOSBurstable), Image: computeImage(pod),
	}
	d.facts.HandOver, d.facts.Obstacle = h, none
	setLabel(d.p.VMI, v1.NodeNameLabel, h.Node)
}

func setLabel(vmi *v1.VirtualMachineInstance, key, value string) {
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	vmi.Labels[key] = value
}

func computeImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			return c.Image
		}
	}
	return ""
}
