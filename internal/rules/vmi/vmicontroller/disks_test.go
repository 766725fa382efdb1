package vmicontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/placement"
)

func filledBy(phase cdiv1.DataVolumePhase, claim corev1.PersistentVolumeClaimPhase) []placement.Claim {
	pvc := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: claim}}
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
	return []placement.Claim{{Name: "disk", Claim: pvc, Source: "disk", DataVolume: dv}}
}

// provisioningPod is one that was just made.
func provisioningPod(edit ...func(*corev1.Pod)) *corev1.Pod {
	return newPod(append([]func(*corev1.Pod){func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }}, edit...)...)
}

func TestWhatIsSaidOfDisks(t *testing.T) {
	const (
		finding = "finding a node on which the VM fits and these claims can be bound: disk"
		filling = "waiting for DataVolumes to be filled: disk"
	)
	waiting, apart := filledBy(cdiv1.WaitForFirstConsumer, corev1.ClaimPending), []placement.Topology{{Claim: "x", Nodes: []string{"a"}}, {Claim: "y", Nodes: []string{"b"}}}
	tests := map[string]struct {
		o     Observed
		phase v1.VirtualMachineInstancePhase
		does  string
		says  []string
	}{
		"a disk is being filled": {
			Observed{VMI: newVMI(), Claims: filledBy(cdiv1.ImportInProgress, corev1.ClaimBound)}, v1.Pending, "",
			[]string{"DataVolumesReady=False NotAllDVsReady: " + filling, "Ready=False GuestNotRunning: " + filling}},
		"nothing is said or done before it is sure": {
			Observed{VMI: newVMI(), Claims: waiting}, v1.VmPhaseUnset, "ask,confirm", nil},
		"a disk waits for its place": {
			Observed{VMI: newVMI(), Claims: waiting, ClaimsConfirmed: true}, v1.Pending, "provision",
			[]string{"DataVolumesReady=False NotAllDVsReady: " + finding, "Provisioning=True : " + finding, "Ready=False GuestNotRunning: " + finding}},
		"no node fits: the scheduler's words": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), Claims: waiting, Provisioning: provisioningPod(unschedulable)}, v1.Pending, "",
			[]string{"DataVolumesReady=False NotAllDVsReady: " + finding, "Provisioning=True : " + finding,
				"PodScheduled=False Unschedulable: 0/2 nodes are available: 2 Insufficient memory.", "Ready=False GuestNotRunning: " + finding}},
		"the provisioning pod was refused by its node": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), Claims: waiting, Provisioning: provisioningPod(podPhase(corev1.PodFailed), func(p *corev1.Pod) { p.Status.Reason = "OutOfpods" })}, v1.Pending, "",
			[]string{"DataVolumesReady=False NotAllDVsReady: " + finding, "Provisioning=True : " + finding,
				"PodScheduled=False Unschedulable: the provisioning pod has ended and is made again: OutOfpods",
				"Ready=False GuestNotRunning: the provisioning pod has ended and is made again: OutOfpods"}},
		"it has its place": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), Claims: filledBy(cdiv1.PVCBound, corev1.ClaimBound), Provisioning: provisioningPod(bound)}, v1.Pending, "unprovision",
			[]string{"DataVolumesReady=False NotAllDVsReady: " + filling, "Ready=False GuestNotRunning: " + filling}},
		"it is filled, and its launcher pod waits for the other to go": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), Claims: filledBy(cdiv1.Succeeded, corev1.ClaimBound), ClaimsConfirmed: true, RivalsAsked: true, Provisioning: provisioningPod()}, v1.Pending, "unprovision", nil},
		"its launcher pod was made meanwhile: that it is bound counts": {
			Observed{VMI: newVMI(inPhase(v1.Scheduling, 0)), Pod: newPod(bound), VMAsked: true, Provisioning: provisioningPod()}, v1.Scheduled, "unprovision",
			[]string{saysWaiting}},
		"it is filled": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0)), Claims: filledBy(cdiv1.Succeeded, corev1.ClaimBound), ClaimsConfirmed: true, RivalsAsked: true}, v1.Scheduling, "create",
			[]string{"DataVolumesReady=True AllDVsReady: all of the VMI's DataVolumes are filled", "Ready=False GuestNotRunning: waiting for a node for the launcher pod"}},
		"filled disks that no node has all of": {
			Observed{VMI: newVMI(), Claims: filledBy(cdiv1.Succeeded, corev1.ClaimBound), ClaimsConfirmed: true, Topologies: apart}, v1.Pending, "",
			[]string{"PodScheduled=False Unschedulable: no node has all of the VM's disks: claim x is on node a, claim y is on node b",
				"Ready=False GuestNotRunning: no node has all of the VM's disks: claim x is on node a, claim y is on node b"}},
		"the VMI is to go": {
			Observed{VMI: newVMI(inPhase(v1.Pending, 0), deleted(0)), Claims: waiting, Provisioning: provisioningPod(), PodAsked: true}, v1.Pending, "unprovision", nil},
		"the guest runs": {
			Observed{VMI: newVMI(inPhase(v1.Running, 0)), Pod: newPod(bound), Provisioning: provisioningPod()}, v1.Running, "unprovision", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Now = now
			p := Decide(test.o)
			var does, says []string
			for what, done := range map[string]bool{
				"ask": p.Needs == NeedDisks, "confirm": p.Disks.Confirm, "provision": p.Disks.Create, "unprovision": p.Disks.Delete, "create": p.CreatePod,
			} {
				if done {
					does = append(does, what)
				}
			}
			slices.Sort(does)
			for _, c := range p.VMI.Status.Conditions {
				says = append(says, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
			}
			if got := strings.Join(does, ","); got != test.does || p.VMI.Status.Phase != test.phase {
				t.Errorf("does %q in phase %q, want %q in %q", got, p.VMI.Status.Phase, test.does, test.phase)
			}
			if diff := cmp.Diff(test.says, says); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDisksAreLookedAtAgain(t *testing.T) {
	rejected := provisioningPod()
	rejected.Status.Phase, rejected.CreationTimestamp = corev1.PodFailed, metav1.NewTime(now)
	p := Decide(Observed{VMI: newVMI(), Claims: filledBy(cdiv1.WaitForFirstConsumer, corev1.ClaimPending), Provisioning: rejected, Now: now})
	if p.After <= 0 || p.After > time.Minute {
		t.Errorf("a provisioning pod that was rejected is looked at again after %v", p.After)
	}
}
