package vmilifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Reasons of the condition Synchronized of a VMI that waits for another's guest.
const (
	ReasonClaimInUse      = "ClaimInUse"
	ReasonPredecessorRuns = "PredecessorNotEnded"
	ReasonPodNameTaken    = "LauncherPodNameTaken"
)

// rivalPause is when the rivals are looked at again if nothing has told of their
// end before.
const rivalPause = 10 * time.Second

// Rival is a launcher pod whose guest may run, and beside which the VMI's must
// not.
//
// Two guests exclude each other like this: a pod that has a node is seen by
// whoever asks the API server afterwards. A VMI is handed over to its node only
// when, after its own pod had one, no rival was there. So of two at least one
// sees the other. Of two that see each other the one with the younger pod takes
// its pod back, and waits before it makes another.
type Rival struct {
	Pod, VMI string
	// Claim is the claim that both write to, "" when the pod is one of an earlier
	// VMI of the same name.
	Claim string
	// Maintains is the machine whose maintenance pod it is, "" for a launcher pod.
	Maintains string
	// Filling says what fills a claim of the VMI's, or is still to fill it, "" for a pod of another kind. It has precedence
	// over any guest that does not run yet: what fills a claim waits for the pods that use it.
	Filling string
	UID     types.UID
	Created time.Time
}

// RivalOf reports what makes a pod a rival of the VMI. A pod without a node holds
// no guest, and gets none while there is another's.
func RivalOf(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (Rival, bool) {
	if launcherpod.MadeFor(pod) == vmi.UID || pod.Name == launcherpod.Name(vmi) {
		return Rival{}, false
	}
	return GuestOn(vmi.Name, launcherpod.ExclusiveClaims(vmi), pod)
}

// GuestOn reports whether a guest may run in a pod that is one of a VMI of the name, or writes to one of the claims.
func GuestOn(name string, claims []string, pod *corev1.Pod) (Rival, bool) {
	r := Rival{Pod: pod.Name, VMI: launcherpod.VMIOf(pod), UID: pod.UID, Created: pod.CreationTimestamp.Time}
	if !launcherpod.IsLauncher(pod) || podstatus.Terminal(pod) || pod.Spec.NodeName == "" {
		return r, false
	}
	if launcherpod.IsNamedFor(pod, name) {
		return r, true
	}
	r.Claim = writtenOf(claims, pod)
	return r, r.Claim != ""
}

// HolderOf reports whether a guest of another VMI, which writes to one of the claims, may run in a pod that has the name of
// one of that VMI's launcher pods, or come to run in it. The VMI's spec says what it writes to, whatever has become of the
// labels of the pod's claims.
func HolderOf(claims []string, other *v1.VirtualMachineInstance, pod *corev1.Pod) (Rival, bool) {
	r := Rival{Pod: pod.Name, VMI: other.Name, Claim: WrittenBy(claims, other), UID: pod.UID, Created: pod.CreationTimestamp.Time}
	runs := launcherpod.BondOf(pod, other) != launcherpod.Foreign && !podstatus.Terminal(pod) && pod.Spec.NodeName != ""
	return r, r.Claim != "" && runs
}

// WrittenBy is the first of the claims that a VMI's guest writes to from its start, "" for none.
func WrittenBy(claims []string, vmi *v1.VirtualMachineInstance) string {
	written := launcherpod.WrittenClaims(vmi)
	if i := slices.IndexFunc(claims, func(claim string) bool { return slices.Contains(written, claim) }); i >= 0 {
		return claims[i]
	}
	return ""
}

// writtenOf is the first of the claims that a pod says it writes to, "" for none.
func writtenOf(claims []string, pod *corev1.Pod) string {
	for _, claim := range claims {
		if _, writes := pod.Labels[launcherpod.ClaimLabel(claim)]; writes {
			return claim
		}
	}
	return ""
}

// Abandoned reports whether a launcher pod is left of a VMI that does not exist any
// more, and nobody else deletes it: the garbage collector knows the owner only.
// instance is the UID of the VMI that has the name now, "" for none; it must be
// the API server's word, and younger than the pod.
func Abandoned(pod *corev1.Pod, instance types.UID) bool {
	of, owner := launcherpod.MadeFor(pod), metav1.GetControllerOf(pod)
	return launcherpod.IsLauncher(pod) && of != instance && pod.DeletionTimestamp == nil && (owner == nil || owner.UID != of)
}

// awaitRivals has a VMI without a pod wait until the guests are gone beside which
// its own must not run.
func (d *decision) awaitRivals() {
	d.facts.Wait.Phase = firstPhase(d.o.VMI)
	d.disksReady()
	d.reportRivals()
}

// yieldOrWait takes the VMI's pod back in favor of an older one.
func (d *decision) yieldOrWait() {
	d.facts.Wait.Phase = v1.Scheduling
	d.reportRivals()
	d.p.DeletePod = slices.ContainsFunc(d.o.Rivals, func(r Rival) bool { return r.before(d.o.Pod) })
}

// before reports whether the rival has precedence over the pod.
func (r Rival) before(pod *corev1.Pod) bool {
	order := r.Created.Compare(pod.CreationTimestamp.Time)
	return cmp.Or(order, cmp.Compare(r.UID, pod.UID)) < 0
}

func (d *decision) reportRivals() {
	d.p.After = rivalPause
	r := slices.MinFunc(d.o.Rivals, func(a, b Rival) int { return cmp.Compare(a.Pod, b.Pod) })
	obstacle := &vmistatus.Obstacle{
		Reason:  ReasonPredecessorRuns,
		Message: fmt.Sprintf("the launcher pod %s of an earlier VMI %s has not ended yet; this one starts when it has", r.Pod, r.VMI),
	}
	switch {
	case r.Filling != "":
		obstacle.Reason, obstacle.Message = ReasonClaimInUse, r.Filling
	case r.Maintains != "":
		obstacle.Reason = ReasonClaimInUse
		obstacle.Message = fmt.Sprintf("the claim %s is used by the maintenance pod %s of %s; this one starts when that has ended", r.Claim, r.Pod, r.Maintains)
	case r.Claim != "":
		obstacle.Reason = ReasonClaimInUse
		obstacle.Message = fmt.Sprintf("the claim %s is written to by the guest of VMI %s (pod %s); this one starts when that has ended, "+
			"or together with it when the disk is shareable in both", r.Claim, r.VMI, r.Pod)
	}
	d.facts.Obstacle = vmistatus.Known(obstacle)
}

// reportTaken says that a pod of the launcher pod's name is none.
func (d *decision) reportTaken() {
	d.p.After = rivalPause
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonPodNameTaken,
		Message: fmt.Sprintf("a pod %s exists that was not made for this VMI; delete it", d.o.Pod.Name)})
}
