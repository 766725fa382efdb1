package vmilifecycle

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

const waitingForNode = "waiting for a node for the launcher pod"

// startChecks bring a VMI whose guest cannot run yet to Scheduled. The first that
// applies decides.
var startChecks = []struct {
	name    string
	applies func(*decision) bool
	then    func(*decision)
}{
	// A pod that has been made is asked for: a read is cheaper than a creation that fails.
	{"the pod is not shown although it was made",
		func(d *decision) bool {
			return d.o.Pod == nil && !d.o.PodAsked && d.o.VMI.Status.Phase == v1.Scheduling
		},
		func(d *decision) { d.p.Needs = NeedPod }},
	{"the disks are not sure yet",
		func(d *decision) bool { return d.p.Disks.Confirm },
		nothing},
	// What the provisioning pod asks for is not to be counted twice.
	{"the provisioning pod has to go first",
		func(d *decision) bool {
			return d.o.Pod == nil && d.p.Disks.State == placement.Clear && d.o.Provisioning != nil
		},
		nothing},
	{"the claim of the VM's state is not the VM's",
		func(d *decision) bool { return d.o.Pod == nil && d.badState() != nil },
		(*decision).awaitState},
	{"the claim of the VM's state is not there",
		func(d *decision) bool { return d.o.Pod == nil && d.lacksState() },
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
	// Somebody deleted it before it was of use, or it made way for another guest; its
	// successor has the same name and must wait until it is gone.
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

// createPod makes the launcher pod. A second creation, on whatever stale view, meets
// the first one's name.
func (d *decision) createPod() {
	d.p.CreatePod = true
	d.disksReady()
	d.facts.Obstacle = none
	d.facts.Wait.Phase, d.facts.Wait.For = v1.Scheduling, waitingForNode
	d.unreported = schedulerPatience
}

// none is the fact that nothing is in the way.
var none = vmistatus.Known[*vmistatus.Obstacle](nil)

func (d *decision) awaitPodsEnd() {
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Wait.For = fmt.Sprintf("waiting for the launcher pod %s to go before it is made again", d.o.Pod.Name)
}

// awaitNode passes on what the scheduler says about the launcher pod.
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

// verdictOn is why the scheduler finds no node for a pod of the VMI's; nil when it has
// not said so.
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

// kvmHint goes with the scheduler's word that nodes lack KVM's device: on its own it
// reads as if they were full.
const kvmHint = " (a node offers " + layout.ResourceKVM + " when its KVM has run a guest, see the node's label " + layout.KVMLabel +
	" and its events; with developerConfiguration.useEmulation in the KubeVirt object guests are emulated where it has not)"

// handOver hands the VMI over to virt-handler on the pod's node.
func (d *decision) handOver() {
	pod := d.o.Pod
	h := &vmistatus.HandOver{
		Pod: pod.UID, Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time, User: layout.QEMUUser, QOS: qosClass(pod),
		Image: imageOf(pod),
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

// imageOf is the image of a pod's launcher.
func imageOf(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == layout.ComputeContainer {
			return c.Image
		}
	}
	return ""
}

// qosClass is the class that the kubelet will report. The API server fills it
// in at creation.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return corev1.PodQOSBurstable
}
