package hotplug

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func claim(phase corev1.PersistentVolumeClaimPhase, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	c.Status.Phase, c.Spec.AccessModes = phase, modes
	return c
}

func filledBy(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return ownedBy("DataVolume", c)
}

func ownedBy(kind string, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "data", Controller: new(true)}}
	return c
}

func dataVolume(phase cdiv1.DataVolumePhase, progress cdiv1.DataVolumeProgress, said string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	dv.Status.Phase, dv.Status.Progress = phase, progress
	dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Message: said}}
	return dv
}

func localTo(node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "host", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	return pv
}

func TestWhatAClaimMeansForItsVolume(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"host": "one"}}}
	anywhere, vague, broken := localTo("two"), localTo("two"), localTo("two")
	anywhere.Spec.NodeAffinity, vague.Spec.NodeAffinity.Required = nil, nil
	broken.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = "Near"
	atOnce := &storagev1.StorageClass{VolumeBindingMode: new(storagev1.VolumeBindingImmediate)}
	later := &storagev1.StorageClass{VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	deleted := claim(corev1.ClaimBound)
	deleted.DeletionTimestamp = &metav1.Time{}
	const firstConsumer = "PVC data waits for its first consumer, which its attachment pod will be"
	tests := map[string]struct {
		facts                ClaimFacts
		attach, alone, empty bool
		reason, message      string
	}{
		"there is none": {ClaimFacts{}, false, false, false,
			"FailedPvcNotFound", "PVC data does not exist, waiting for it to appear"},
		"it is bound":              {ClaimFacts{Claim: claim(corev1.ClaimBound)}, true, false, false, "", ""},
		"it is bound to this node": {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: localTo("one"), Node: node}, true, false, false, "", ""},
		"it is bound to another node": {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: localTo("two"), Node: node}, false, false, false,
			"PVCOnAnotherNode", "PVC data can't be used on node one, where the VM runs: its volume pv-1 is bound to other nodes"},
		"only one pod may use it": {ClaimFacts{Claim: claim(corev1.ClaimBound, corev1.ReadWriteOncePod)}, true, true, false, "", ""},
		"it is pending": {ClaimFacts{Claim: claim(corev1.ClaimPending)}, false, false, false,
			"PVCNotReady", "PVC data is in phase Pending"},
		"it waits for its first consumer": {ClaimFacts{Claim: claim(corev1.ClaimPending), Class: later}, true, true, false,
			"WaitForFirstConsumer", firstConsumer},
		"it has lost its volume": {ClaimFacts{Claim: claim(corev1.ClaimLost)}, false, false, false,
			"PVCNotReady", "PVC data has lost its volume"},
		"it is being deleted": {ClaimFacts{Claim: deleted}, false, false, false,
			"PVCNotReady", "PVC data is being deleted"},
		"its DataVolume does not exist": {ClaimFacts{DataVolumeNamed: true}, false, false, false,
			"FailedPvcNotFound", "DataVolume data does not exist, waiting for it to appear"},
		"its DataVolume is being filled": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.ImportInProgress, "42.0%", "")}, false, false, false,
			"DataVolumeNotReady", "DataVolume data is not filled yet: ImportInProgress (42.0%)"},
		"its DataVolume has just been made": {
			ClaimFacts{DataVolumeNamed: true, DataVolume: dataVolume("", "N/A", "")}, false, false, false,
			"DataVolumeNotReady", "DataVolume data is not filled yet: Pending"},
		"its DataVolume waits for a first consumer": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimPending)), DataVolume: dataVolume(cdiv1.WaitForFirstConsumer, "", "")}, true, true, true,
			"WaitForFirstConsumer", firstConsumer},
		"its DataVolume waited, and the claim is bound now": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.WaitForFirstConsumer, "", "")}, false, false, false,
			"DataVolumeNotReady", "DataVolume data is not filled yet: WaitForFirstConsumer"},
		"its DataVolume has failed": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.Failed, "", "404 Not Found")}, false, false, false,
			"DataVolumeError", "DataVolume data has failed: 404 Not Found"},
		"its DataVolume has succeeded": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.Succeeded, "100.0%", "")}, true, false, false, "", ""},
		"it is another owner's":                              {ClaimFacts{Claim: ownedBy("StatefulSet", claim(corev1.ClaimBound))}, true, false, false, "", ""},
		"its volume can be used on any node":                 {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: anywhere, Node: node}, true, false, false, "", ""},
		"its volume says nothing of nodes":                   {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: vague, Node: node}, true, false, false, "", ""},
		"its volume says of nodes what nobody understands":   {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: broken, Node: node}, true, false, false, "", ""},
		"its volume is on a node, and the VM's is not known": {ClaimFacts{Claim: claim(corev1.ClaimBound), PV: localTo("two")}, true, false, false, "", ""},
		"its volume is not known":                            {ClaimFacts{Claim: claim(corev1.ClaimBound), Node: node}, true, false, false, "", ""},
		"it is pending in a class that waits for nobody": {ClaimFacts{Claim: claim(corev1.ClaimPending), Class: atOnce}, false, false, false,
			"PVCNotReady", "PVC data is in phase Pending"},
		"it is pending in a class that does not say": {ClaimFacts{Claim: claim(corev1.ClaimPending), Class: &storagev1.StorageClass{}}, false, false, false,
			"PVCNotReady", "PVC data is in phase Pending"},
		"it does not exist": {ClaimFacts{}, false, false, false, "FailedPvcNotFound", "PVC data does not exist, waiting for it to appear"},
		"its DataVolume waits to be filled by others": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimPending)), DataVolume: dataVolume(cdiv1.PendingPopulation, "", "")}, true, true, true,
			"WaitForFirstConsumer", firstConsumer},
		"its DataVolume waits for a first consumer, and has no claim yet": {
			ClaimFacts{DataVolumeNamed: true, DataVolume: dataVolume(cdiv1.WaitForFirstConsumer, "", "")}, false, false, false,
			"DataVolumeNotReady", "DataVolume data is not filled yet: WaitForFirstConsumer"},
		"its DataVolume waits for its claim": {
			ClaimFacts{Claim: filledBy(claim(corev1.ClaimPending)), DataVolume: dataVolume(cdiv1.Pending, "", "")}, false, false, false,
			"DataVolumeNotReady", "DataVolume data is not filled yet: Pending"},
		"its DataVolume is gone and has left it": {
			ClaimFacts{DataVolumeNamed: true, Claim: claim(corev1.ClaimBound)}, true, false, false, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.facts.Volume = Volume{Name: "vol", Claim: "data"}
			want := Wanted{Volume: test.facts.Volume, Attach: test.attach, Alone: test.alone, Empty: test.empty, Reason: test.reason, Message: test.message}
			if got := WantedOf(test.facts); got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}
