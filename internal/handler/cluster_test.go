package handler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestTwoMigrationsAreTwoEvents, and the object of other events is the VMI alone.
func TestTwoMigrationsAreTwoEvents(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if got := relatedTo(vmi, v1.Migrated.String()); got != nil {
		t.Errorf("without a migration it is related to %v", got)
	}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "4d5e"}
	if got := relatedTo(vmi, v1.SyncFailed.String()); got != nil {
		t.Errorf("another event is related to %v", got)
	}
	want := corev1.ObjectReference{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstanceMigration", Namespace: "shop", UID: "4d5e"}
	got, ok := relatedTo(vmi, v1.Migrated.String()).(*corev1.ObjectReference)
	if !ok || *got != want {
		t.Errorf("it is related to %v, want %v", got, want)
	}
}
