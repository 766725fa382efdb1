//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func nodeSaysWhatItRunsWith(t *testing.T, g *guest) {
	t.Helper()
	vmi := awaitRunning(t, g.namespace, g.name)
	node := &corev1.Node{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: vmi.Status.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	kvm := node.Labels[layout.KVMLabel]
	t.Logf("KVM of node %s is %q, emulation %q, UEFI %q", node.Name, kvm, node.Labels[layout.TCGLabel], node.Labels[layout.UEFILabel])
	if node.Labels[v1.NodeSchedulable] != "true" || node.Labels[layout.UEFILabel] != "usable" {
		t.Errorf("a node with a guest has the labels %v", node.Labels)
	}
	if want := map[string]string{"kvm": "usable", "tcg": "off"}[os.Getenv("DRYDOCK_ACCEL")]; want != "" && kvm != want {
		t.Errorf("DRYDOCK_ACCEL is %s, and the node's KVM %s", os.Getenv("DRYDOCK_ACCEL"), kvm)
	}
	seen := g.run("dmesg | grep -c 'Hypervisor detected: KVM' || true")
	if withKVM := strings.TrimSpace(seen) != "0"; withKVM != (kvm == "usable") {
		t.Errorf("the node's KVM is %s; the guest's kernel says %q times that it runs on KVM", kvm, seen)
	}
	if told, known := vmistatus.RunsWithKVM(vmi); !known || told != (kvm == layout.KVMUsable) {
		t.Errorf("the VMI says of KVM: %v (known: %v); its node says %s", told, known, kvm)
	}
	if kvm == "unusable" {
		toldOfKVM(t, node.Name)
	}
}

// toldOfKVM waits for a node's only event with the reason why it can't use KVM.
func toldOfKVM(t *testing.T, node string) {
	t.Helper()
	eventually(t, "the node's event", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(corev1.NamespaceDefault)); err != nil {
			return err
		}
		count := 0
		for _, e := range events.Items {
			if e.InvolvedObject.Name == node && e.Reason == "KVMUnusable" && e.Type == corev1.EventTypeWarning {
				t.Logf("%s: %s", e.Reason, e.Message)
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("%d events KVMUnusable on node %s", count, node)
		}
		return nil
	})
}

// migratesToWhatItRunsWith gives the other node a label that claims the accelerator that this node lacks. The guest
// must stay and its migration must say why, until the label is true again.
func migratesToWhatItRunsWith(t *testing.T, s *staying) {
	t.Helper()
	vmi := s.vmi
	ns, name := vmi.Namespace, vmi.Name
	kvm, _ := vmistatus.RunsWithKVM(vmi)
	other, sentence := layout.KVMUsable, "the guest is emulated, so its node must not be labeled drydock.dev/kvm=usable"
	if kvm {
		other, sentence = "unusable", "the guest runs with KVM, so its node must be labeled drydock.dev/kvm=usable"
	}
	restore := labelKVM(t, otherThan(vmi.Status.NodeName), other)
	m := newMigration(ns, name)
	create(t, m)
	waiting := awaitMigration(t, m, "the scheduler's word", func(m *v1.VirtualMachineInstanceMigration) bool {
		if m.IsFinal() {
			t.Fatalf("the migration is %s: %+v", m.Status.Phase, m.Status.MigrationState)
		}
		return strings.Contains(waitsFor(m), sentence)
	})
	t.Logf("the migration waits: %s", waitsFor(waiting))
	restore()
	awaitEnd(t, m, v1.MigrationSucceeded)
	if login(t, ns, name).bootID() != s.bootID {
		t.Error("the guest was started again")
	}
	moved := awaitVMI(t, ns, name, "the other node", func(now *v1.VirtualMachineInstance) bool { return now.Status.NodeName != vmi.Status.NodeName })
	if now, known := vmistatus.RunsWithKVM(moved); !known || now != kvm {
		t.Errorf("after the migration the VMI says of KVM: %v (known: %v), want %v", now, known, kvm)
	}
}

// waitsFor returns the reason why a migration waits, or "".
func waitsFor(m *v1.VirtualMachineInstanceMigration) string {
	for _, c := range m.Status.Conditions {
		if c.Type == migration.ConditionWaiting && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// restore brings the old label back; so does the end of the test.
func labelKVM(t *testing.T, name, value string) (restore func()) {
	t.Helper()
	set := func(ctx context.Context, value *string) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{layout.KVMLabel: value}}})
		if err != nil {
			return err
		}
		return cluster.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, patch))
	}
	node := &corev1.Node{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	var before *string
	if v, had := node.Labels[layout.KVMLabel]; had {
		before = &v
	}
	if err := set(t.Context(), &value); err != nil {
		t.Fatalf("labeling node %s: %v", name, err)
	}
	restore = sync.OnceFunc(func() {
		if err := set(context.WithoutCancel(t.Context()), before); err != nil {
			t.Errorf("giving node %s back its label %s: %v", name, layout.KVMLabel, err)
		}
	})
	t.Cleanup(restore)
	return restore
}
