//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TestANodeSaysWhatItsGuestsRunWith compares a node's labels with what a guest sees.
func TestANodeSaysWhatItsGuestsRunWith(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := boot(t, newVMI(ns, "accelerated"))
	vmi := awaitRunning(t, ns, "accelerated")
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
	if kvm != "unusable" {
		return
	}
	eventually(t, "the node's event", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(corev1.NamespaceDefault)); err != nil {
			return err
		}
		count := 0
		for _, e := range events.Items {
			if e.InvolvedObject.Name == node.Name && e.Reason == "KVMUnusable" && e.Type == corev1.EventTypeWarning {
				t.Logf("%s: %s", e.Reason, e.Message)
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("%d events KVMUnusable on node %s", count, node.Name)
		}
		return nil
	})
}
