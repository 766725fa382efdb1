//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/condition"
)

// churn has the guest change its memory, faster than a network sends it.
func (g *guest) churn() {
	g.t.Helper()
	g.run(`for f in a b; do dd if=/dev/urandom of=/run/$f bs=1M count=8 2>/dev/null; done; (while :; do cat /run/a >/run/c; cat /run/b >/run/c; done) >/dev/null 2>&1 &`)
}

// limit has a MigrationPolicy for a VM be as it is given.
func limit(t *testing.T, ns, name string, spec migrationsv1.MigrationPolicySpec) {
	t.Helper()
	spec.Selectors = &migrationsv1.Selectors{
		NamespaceSelector:              migrationsv1.LabelSelector{corev1.LabelMetadataName: ns},
		VirtualMachineInstanceSelector: migrationsv1.LabelSelector{"vm": name},
	}
	policy := &migrationsv1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name}}
	before := policy.DeepCopy()
	err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(policy), before)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("reading the policy: %v", err)
	}
	if err != nil {
		policy.Spec = spec
		create(t, policy)
		t.Cleanup(func() { deleteObject(t, policy) })
		return
	}
	policy = before.DeepCopy()
	policy.Spec = spec
	if err := cluster.client.Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing the policy: %v", err)
	}
}

// standsStill reports whether a VMI says that its guest is stopped for its migration.
func standsStill(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == runstate.ReasonMigrating
}

// TestAGuestThatChangesItsMemoryFasterThanItIsSent does not arrive in its time, and goes on where it is.
// Where that is allowed it is stopped until it has arrived; when the migration is canceled, it goes on.
func TestAGuestThatChangesItsMemoryFasterThanItIsSent(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newMigratableVM(t, ns, "busy"))
	g.count()
	g.churn()
	bootID, from := g.bootID(), awaitRunning(t, ns, "busy").Status.NodeName

	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("16Mi")), CompletionTimeoutPerGiB: new(int64(12)), AllowWorkloadDisruption: new(false),
	})
	tooSlow := newMigration(ns, "busy")
	create(t, tooSlow)
	failed := awaitEnd(t, tooSlow, v1.MigrationFailed)
	if m := failed.Status.MigrationState; m == nil || !strings.Contains(m.FailureReason, "raise bandwidthPerMigration, which is 16 MiB/s") {
		t.Errorf("the migration says %+v", m)
	} else {
		t.Logf("figure converge: %s", m.FailureReason)
	}
	awaitVMI(t, ns, "busy", "Ready on its node", ready)

	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("1Mi")), CompletionTimeoutPerGiB: new(int64(2)), AllowWorkloadDisruption: new(true),
	})
	create(t, newMigration(ns, "busy"))
	awaitVMI(t, ns, "busy", "a guest that stands still", standsStill)
	do(t, ns, "migrate-cancel", "busy")
	stays := awaitVMI(t, ns, "busy", "Ready on its node", ready)
	awaitOneLauncher(t, stays, from)
	counted := g.counted()

	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("16Mi")), CompletionTimeoutPerGiB: new(int64(2)), AllowPostCopy: new(true),
	})
	moves := newMigration(ns, "busy")
	create(t, moves)
	awaitVMI(t, ns, "busy", "a guest that stands still", standsStill)
	awaitEnd(t, moves, v1.MigrationSucceeded)
	awaitNote(t, ns, "its launcher pod has no userfaultfd")
	moved := awaitVMI(t, ns, "busy", "Ready on the other node", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName != from && ready(vmi)
	})
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	g = login(t, ns, "busy")
	if now := g.counted(); g.bootID() != bootID || now < counted {
		t.Errorf("the guest has counted to %d after %d, or was started again", now, counted)
	}
	startedOnce(t, ns, "busy")
}

// awaitNote waits for an event of a namespace whose message has a text.
func awaitNote(t *testing.T, namespace, text string) {
	t.Helper()
	eventually(t, "an event with "+text, func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, text) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events has it", len(events.Items))
	})
}
