package clientgo

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
)

func awaitArrival(t *testing.T, before *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	t.Helper()
	all := migrationsOf(t, before.Namespace, before.Name)
	if len(all) != 1 {
		t.Fatalf("there are %d migrations of the VMI, want 1", len(all))
	}
	ended := awaitMigration(t, &all[0], "end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() })
	m := ended.Status.MigrationState
	if ended.Status.Phase != v1.MigrationSucceeded || m == nil || m.SourceNode != before.Status.NodeName {
		t.Fatalf("the migration is %s: %+v", ended.Status.Phase, m)
	}
	return awaitVMI(t, before.Namespace, before.Name, "be on the other node", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName == m.TargetNode && m.TargetNode != m.SourceNode && vmi.Status.MigrationState.Completed
	})
}

// nowhereToGo makes a migration that no node fits, and cancels it. Meanwhile no other may be admitted, and it must be
// immutable.
func nowhereToGo(t *testing.T, namespace, name string) {
	t.Helper()
	client := virt.VirtualMachineInstanceMigration(namespace)
	wanted := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nowhere-"},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: name, AddedNodeSelector: map[string]string{"drydock.dev/such-a-node": "none"}},
	}
	m, err := client.Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a migration: %v", err)
	}
	m = awaitMigration(t, m, "say that no node fits", func(m *v1.VirtualMachineInstanceMigration) bool {
		for _, c := range m.Status.Conditions {
			if contains(c.Message, "the migration's addedNodeSelector asks for drydock.dev/such-a-node=none") {
				return true
			}
		}
		return false
	})
	_, err = client.Create(t.Context(), wanted, metav1.CreateOptions{})
	mustFail(t, "a second migration", err, errors.IsInvalid, "VMI "+name+" is being migrated already, by the migration "+m.Name+"; delete that to cancel it")
	err = virt.VirtualMachine(namespace).Migrate(t.Context(), name, &v1.MigrateOptions{})
	mustFail(t, "migrating the VM meanwhile", err, isRefusal, "is being migrated already")
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its status changes while it waits
		changed, err := client.Get(t.Context(), m.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.Spec.AddedNodeSelector = nil
		_, err = client.Update(t.Context(), changed, metav1.UpdateOptions{})
		return err
	})
	mustFail(t, "changing a migration", err, errors.IsInvalid, "a migration can't be changed: delete it, which cancels it, and create another")
	wanted.Spec.VMIName = "nobody"
	_, err = client.Create(t.Context(), wanted, metav1.CreateOptions{})
	mustFail(t, "migrating what does not exist", err, errors.IsInvalid, "there is no such VMI in namespace "+namespace)

	for _, m := range migrationsOf(t, namespace, name) {
		if err := client.Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("canceling the migration: %v", err)
		}
		awaitDeleted(t, listWatch(m.Name, client.List, client.Watch), &v1.VirtualMachineInstanceMigration{}, "migration "+m.Name)
	}
}

func isRefusal(err error) bool { return errors.IsConflict(err) || errors.IsInvalid(err) }

// KubeVirt's virtctl finds them so.
func migrationsOf(t *testing.T, namespace, name string) []v1.VirtualMachineInstanceMigration {
	t.Helper()
	list, err := virt.VirtualMachineInstanceMigration(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1.MigrationSelectorLabel + " in (" + name + ")"})
	if err != nil {
		t.Fatalf("listing the migrations of VMI %s: %v", name, err)
	}
	return list.Items
}

// awaitMigration is awaitVMI for a migration.
func awaitMigration(t *testing.T, m *v1.VirtualMachineInstanceMigration, what string, reached func(*v1.VirtualMachineInstanceMigration) bool) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	client := virt.VirtualMachineInstanceMigration(m.Namespace)
	return await(t, listWatch(m.Name, client.List, client.Watch), &v1.VirtualMachineInstanceMigration{}, "migration "+m.Name+" to "+what, reached)
}

func launcherOf(t *testing.T, vmi *v1.VirtualMachineInstance) string {
	t.Helper()
	pods, err := virt.CoreV1().Pods(vmi.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1.CreatedByLabel + "=" + string(vmi.UID)})
	if err != nil {
		t.Fatalf("listing the pods of VMI %s: %v", vmi.Name, err)
	}
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			names = append(names, pods.Items[i].Name)
		}
	}
	if len(names) != 1 {
		t.Fatalf("VMI %s has the pods %s, want one", vmi.Name, strings.Join(names, ", "))
	}
	return names[0]
}
