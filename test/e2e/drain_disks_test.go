//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// A drain may move both of the VM's local disks, one of which is from its own template.
func newDrainableVM(t *testing.T, ns, name string) *v1.VirtualMachine {
	t.Helper()
	vm := evictable(newLocalVM(t, ns, name))
	vm.Annotations = map[string]string{volumemigration.DrainAnnotation: volumemigration.DrainMigrate}
	vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
	made := newDataVolume(ns, name+"-made", "48Mi", cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: made.Name}, Spec: made.Spec}}
	vm.Spec.Template.Spec.Volumes[1].DataVolume.Name = made.Name
	return vm
}

func destinationsOfDrains(t *testing.T, ns string) []cdiv1.DataVolume {
	t.Helper()
	list := &cdiv1.DataVolumeList{}
	if err := cluster.client.List(t.Context(), list, client.InNamespace(ns), client.HasLabels{volumemigration.DrainLabel}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func claimsOfNamespace(ctx context.Context, ns string) ([]string, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := cluster.client.List(ctx, list, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return slices.Sorted(slices.Values(names)), nil
}

// TestDrainMovesLocalDisks drains a node whose guest has three local disks, one of them hotplugged. First no other
// node can take the guest: when the drain is canceled, everything must be as before. Then the drain must empty the
// node. The API server's tests cover the claims; here kubectl waits for pods and a guest for its disks. Not parallel:
// other tests need the nodes.
func TestDrainMovesLocalDisks(t *testing.T) {
	ns := newNamespace(t)
	vm := preferring(newDrainableVM(t, ns, "leaves"), node2)
	plugLocal(t, vm)
	g := bootVM(t, vm)
	awaitPlugged(t, ns, "leaves", "leaves-plugged")
	g.sees("its disks", "ls /sys/block | grep -c '^[sv]d'", "3")
	kept, bootID := g.keepJournals(), g.bootID()
	vmi := awaitRunning(t, ns, "leaves")
	from, own := vmi.Status.NodeName, v1.CreatedByLabel+"="+string(vmi.UID)
	old, before := sources(&vmi.Spec), claimsThatStay(t, ns)

	uncordon, uncordonOther := cordon(t, from), cordon(t, otherThan(from))
	drainUntil(t, from, own, func(*transcript) {
		awaitVMI(t, ns, "leaves", "disks that are to be copied", func(vmi *v1.VirtualMachineInstance) bool { return len(vmi.Status.MigratedVolumes) == 3 })
	})
	uncordon()
	awaitVM(t, ns, "leaves", "the template as it was", func(now *v1.VirtualMachine) bool {
		return slices.Equal(claims(sources(&now.Spec.Template.Spec)), claims(old)) && now.Spec.DataVolumeTemplates[0].Name == "leaves-made"
	})
	eventually(t, "the claims as they were", func(ctx context.Context) error {
		now, err := claimsOfNamespace(ctx, ns)
		if err == nil && !slices.Equal(now, before) {
			err = fmt.Errorf("they are %v, and were %v", now, before)
		}
		return err
	})
	awaitNoMove(t, ns, "leaves")
	uncordonOther()

	if out, err := drain(t, from, own); err != nil {
		t.Fatalf("the drain has ended with: %v\n%s", err, out)
	}
	now := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "leaves"}, now); err != nil {
		t.Fatal(err)
	}
	moved := awaitOnClaims(t, ns, "leaves", sources(&now.Spec.Template.Spec))
	if moved.UID != vmi.UID || moved.Status.NodeName == from {
		t.Fatalf("the VMI %s on %s is %s on %s", vmi.UID, from, moved.UID, moved.Status.NodeName)
	}
	awaitNoMove(t, ns, "leaves")
	g = login(t, ns, "leaves")
	kept.check(g)
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	for _, dv := range destinationsOfDrains(t, ns) {
		if made := dv.Name == now.Spec.DataVolumeTemplates[0].Name; metav1.IsControlledBy(&dv, now) != made {
			t.Errorf("%s is owned by %+v", dv.Name, dv.OwnerReferences)
		}
	}
	if got := claimsThatStay(t, ns); len(got) != len(before)+3 {
		t.Errorf("the claims were %v, and are %v", before, got)
	}
}

func claimsThatStay(t *testing.T, ns string) []string {
	t.Helper()
	names, err := claimsOfNamespace(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
