package vmicontroller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Reasons of Synchronized for a VMI that waits for another guest.
const (
	ReasonClaimInUse      = "ClaimInUse"
	ReasonPredecessorRuns = "PredecessorNotEnded"
	ReasonPodNameTaken    = "LauncherPodNameTaken"
)

// rivalPause is the interval of checks in case no event reports the rivals' end.
const rivalPause = 10 * time.Second

// Rival is a launcher pod whose guest may run and excludes the VMI's own.
//
// Every later read of the API server shows a pod with a node. A VMI is handed over only if such a read, after its own pod
// got a node, finds no rival. So at least one of two guests sees the other. If both do, the VMI with the younger pod
// deletes it, and waits before it creates another.
type Rival struct {
	Pod, VMI  string
	Claim     string // to which both write; "" for a pod of an earlier VMI with the same name
	Maintains string // the machine of a maintenance pod, "" for a launcher pod
	// Filling describes a pod or DataVolume that fills one of the claims now or later. It waits for the pods that use its
	// claim, so it precedes a guest that does not run yet.
	Filling string
	UID     types.UID
	Created time.Time
}

// RivalOf ignores a pod without a node, which has no guest, and gets no node while a rival has one.
func RivalOf(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (Rival, bool) {
	if launcherpod.MadeFor(pod) == vmi.UID || pod.Name == launcherpod.Name(vmi) {
		return Rival{}, false
	}
	return GuestOn(vmi.Name, launcherpod.ExclusiveClaims(vmi), pod)
}

// GuestOn reports whether a guest may run in a pod of a VMI of that name, or one that writes to one of the claims.
func GuestOn(name string, claims []string, pod *corev1.Pod) (Rival, bool) {
	r := Rival{Pod: pod.Name, VMI: launcherpod.VMIOf(pod), UID: pod.UID, Created: pod.CreationTimestamp.Time}
	if !launcherpod.IsLauncher(pod) || podstatus.Terminal(pod) || pod.Spec.NodeName == "" {
		return r, false
	}
	if launcherpod.IsNamedFor(pod, name) {
		return r, true
	}
	r.Claim = claimWrittenBy(claims, pod)
	return r, r.Claim != ""
}

// HolderOf reports whether another VMI's guest that writes to one of the claims may run or start in its launcher pod. The
// claims are the spec's, since the pod's labels may have been changed.
func HolderOf(claims []string, other *v1.VirtualMachineInstance, pod *corev1.Pod) (Rival, bool) {
	r := Rival{Pod: pod.Name, VMI: other.Name, Claim: WrittenBy(claims, other), UID: pod.UID, Created: pod.CreationTimestamp.Time}
	runs := launcherpod.BondOf(pod, other) != launcherpod.Foreign && !podstatus.Terminal(pod) && pod.Spec.NodeName != ""
	return r, r.Claim != "" && runs
}

// WrittenBy returns the first claim that the VMI's guest writes to from its start.
func WrittenBy(claims []string, vmi *v1.VirtualMachineInstance) string {
	written := launcherpod.WrittenClaims(vmi)
	if i := slices.IndexFunc(claims, func(claim string) bool { return slices.Contains(written, claim) }); i >= 0 {
		return claims[i]
	}
	return ""
}

func claimWrittenBy(claims []string, pod *corev1.Pod) string {
	for _, claim := range claims {
		if _, writes := pod.Labels[launcherpod.ClaimLabel(claim)]; writes {
			return claim
		}
	}
	return ""
}

// Abandoned reports whether a launcher pod has outlived its VMI and has no owner reference by which the garbage collector
// would delete it. instance is the UID of the VMI with the name, read from the API server after the pod.
func Abandoned(pod *corev1.Pod, instance types.UID) bool {
	of, owner := launcherpod.MadeFor(pod), metav1.GetControllerOf(pod)
	return launcherpod.IsLauncher(pod) && of != instance && pod.DeletionTimestamp == nil && (owner == nil || owner.UID != of)
}

func (d *decision) awaitRivals() {
	d.facts.Wait.Phase = firstPhase(d.o.VMI)
	d.reportDisksReady()
	d.reportRivals()
}

func (d *decision) yieldOrWait() {
	d.facts.Wait.Phase = v1.Scheduling
	d.reportRivals()
	d.p.DeletePod = slices.ContainsFunc(d.o.Rivals, func(r Rival) bool {
		return cmp.Or(r.Created.Compare(d.o.Pod.CreationTimestamp.Time), cmp.Compare(r.UID, d.o.Pod.UID)) < 0
	})
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

func (d *decision) reportTaken() {
	d.p.After = rivalPause
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonPodNameTaken,
		Message: fmt.Sprintf("a pod %s exists that was not made for this VMI; delete it", d.o.Pod.Name)})
}
