package vmicontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

func keepsTPM(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
}

// The claim of the state is missing if phase is empty.
func stateOf(vmi *v1.VirtualMachineInstance, phase corev1.PersistentVolumeClaimPhase, edit ...func(*corev1.PersistentVolumeClaim)) []placement.Claim {
	state := placement.Claim{Name: stateclaim.ClaimName(vmi)}
	if phase != "" {
		state.Claim = stateclaim.Claim(vmi, "", nil)
		state.Claim.Status.Phase = phase
		for _, e := range edit {
			e(state.Claim)
		}
	}
	return []placement.Claim{{Name: "disk", Claim: &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}, state}
}

func TestAVMsStateIsThereBeforeItsPod(t *testing.T) {
	vmi := newVMI(keepsTPM)
	foreign := func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].UID = "other" }
	going := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.NewTime(now)) }
	for name, test := range map[string]struct {
		claims               []placement.Claim
		createState          bool
		createPod, looks     bool
		reason, says, awaits string
	}{
		"there is none":            {claims: stateOf(vmi, ""), createState: true, awaits: "waiting for the PVC " + stateclaim.ClaimName(vmi) + " of the VM's state"},
		"it is bound":              {claims: stateOf(vmi, corev1.ClaimBound), createPod: true},
		"it is bound with the pod": {claims: stateOf(vmi, corev1.ClaimPending), createPod: true},
		"it is the only claim":     {claims: stateOf(vmi, corev1.ClaimBound, foreign)[1:], looks: true, reason: ReasonStateClaim, says: "belongs to something else"},
		"it is somebody else's":    {claims: stateOf(vmi, corev1.ClaimBound, foreign), looks: true, reason: ReasonStateClaim, says: "belongs to something else"},
		"it is being deleted":      {claims: stateOf(vmi, corev1.ClaimBound, going), looks: true, reason: ReasonStateClaim, says: "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(Observed{VMI: newVMI(keepsTPM), Claims: test.claims, ClaimsConfirmed: true, RivalsAsked: true, Now: now})
			if p.CreateState != test.createState || p.CreatePod != test.createPod || p.Disks.Create || p.After == rivalPause != test.looks {
				t.Errorf("makes the claim: %v, the pod: %v, a provisioning pod: %v; looks again after %v", p.CreateState, p.CreatePod, p.Disks.Create, p.After)
			}
			reason, message := "", ""
			for _, c := range p.VMI.Status.Conditions {
				if c.Type == v1.VirtualMachineInstanceSynchronized {
					reason, message = c.Reason, c.Message
				}
				if c.Type == v1.VirtualMachineInstanceReady && test.awaits != "" && c.Message != test.awaits {
					t.Errorf("Ready says %q, want %q", c.Message, test.awaits)
				}
			}
			if reason != test.reason || !strings.Contains(message, test.says) {
				t.Errorf("Synchronized says %q, %q", reason, message)
			}
		})
	}
}

func TestAForeignStateIsNotBound(t *testing.T) {
	vmi := newVMI(keepsTPM)
	claims := stateOf(vmi, corev1.ClaimPending, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil })
	claims[0] = filledBy("WaitForFirstConsumer", corev1.ClaimPending)[0]
	p := Decide(Observed{VMI: vmi, Claims: claims, ClaimsConfirmed: true, RivalsAsked: true, Now: now})
	if p.Disks.Create || p.CreatePod || p.CreateState {
		t.Errorf("the plan is %+v", p)
	}
}

func TestAVMIWithoutStateHasNoClaimForIt(t *testing.T) {
	nameless := stateOf(newVMI(keepsTPM), "")
	nameless[1].Name = ""
	for name, claims := range map[string][]placement.Claim{"none": nil, "a claim without a name": nameless[1:]} {
		p := Decide(Observed{VMI: newVMI(), Claims: claims, ClaimsConfirmed: true, RivalsAsked: true, Now: now})
		if p.CreateState {
			t.Errorf("%s: a claim is made", name)
		}
	}
}
