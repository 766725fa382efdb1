package migration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

var toNew = volumemigration.Move{Volume: "root", From: "old", To: "new"}

// copied gives the VMI a volume on the claim old, whose disk must be copied to the claim new.
func copied(o *Observed) {
	o.VMI.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "old"}}}}
	o.VMI.Status.MigratedVolumes = volumemigration.Write([]volumemigration.Move{toNew})
}

func takenBack(o *Observed) {
	o.VMI.Status.Conditions = append(o.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceVolumesChange, Status: corev1.ConditionFalse, Reason: v1.VirtualMachineInstanceReasonVolumesChangeCancellation,
	})
}

// destination adds the claim new from the API server.
func destination(o *Observed) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	o.Destinations, o.DestinationsAsked = []volumemigration.Destination{{Move: toNew, Claim: placement.Claim{Claim: claim}}}, true
}

func missing(o *Observed) {
	o.Destinations, o.DestinationsAsked = []volumemigration.Destination{{Move: toNew}}, true
}

// onClaim gives the pod a volume on a claim.
func onClaim(claim string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "vol-root", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func TestDisksThatAreCopiedToOtherClaims(t *testing.T) {
	const node1 = "state of m node1 -> "
	const why = "volume root can't be copied yet: the PVC new does not exist"
	const begins = "begin m from node1/virt-launcher-vm-src to node2/virt-launcher-vm-tgt (target), policy \"\", 5"
	other := "the target pod virt-launcher-vm-tgt has volume root on the claim \"old\", and the VMI wants it on \"new\" by now"
	check(t, map[string]situation{
		"the claims have to be asked for": {observed(copied), lines("needs the claims that disks are copied to")},
		"a claim is missing":              {observed(copied, missing), lines("enter Pending", "drydock.dev/Waiting=True DestinationNotReady: "+why, "look again after 5s")},
		"the claims are there":            {observed(copied, destination), lines("create the target pod", "enter Pending", "enter Scheduling")},

		"they have to be asked for again":    {observed(copied, in(v1.MigrationScheduling), target("node2", runs, onClaim("new"))), lines("needs the claims that disks are copied to")},
		"a claim is missing by now":          {observed(copied, missing, in(v1.MigrationScheduling), target("node2", runs, onClaim("new"))), lines("drydock.dev/Waiting=True DestinationNotReady: "+why, "look again after 5s")},
		"the target pod was made before":     {observed(asked, copied, destination, in(v1.MigrationScheduling), target("node2", runs, onClaim("old"))), lines("enter Failed", node1+"node2/virt-launcher-vm-tgt failed completed at 12:00:00: "+other, "delete the target pod")},
		"the target pod is for what moves":   {observed(copied, destination, in(v1.MigrationScheduling), target("node2", runs, onClaim("new"))), lines(begins, "enter Scheduled", "enter PreparingTarget", "look again after 5m0s")},
		"it is taken back while it prepares": {observed(copied, takenBack, in(v1.MigrationPreparingTarget), told(), target("node2", runs)), lines("failure: the VM does not want its volumes on other claims any more")},
	})
}
