//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// The guest changes its memory faster than the network sends it. Without a pause it would take a whole CPU.
func (g *guest) churn() {
	g.t.Helper()
	g.run(`for f in a b; do dd if=/dev/urandom of=/run/$f bs=1M count=8 2>/dev/null; done; (while :; do cat /run/a >/run/c; cat /run/b >/run/c; usleep 300000; done) >/dev/null 2>&1 &`)
}

// count makes the guest count in its memory until it ends.
func (g *guest) count() {
	g.t.Helper()
	g.run("(diskcount /run/count >/dev/null 2>&1 &); until test -s /run/count; do sleep 0.1; done")
}

// counted returns the guest's count.
func (g *guest) counted() int {
	g.t.Helper()
	n, err := strconv.Atoi(g.run("cat /run/count"))
	if err != nil {
		g.t.Fatalf("reading what %s has counted: %v", g.name, err)
	}
	return n
}

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

func standsStill(vmi *v1.VirtualMachineInstance) bool {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == runstate.ReasonMigrating
}

// TestAGuestThatChangesItsMemoryFasterThanItIsSent must not arrive in its time, and must run on on its node.
// Where workload disruption is allowed, it must be stopped until it has arrived; a canceled migration must let it
// run on. Where post-copy is allowed it must move before its memory, if the nodes can do that. The driver's tests
// cover the steps with a model of QEMU; only a real one has memory that changes.
func TestAGuestThatChangesItsMemoryFasterThanItIsSent(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	possible := letUserfaultfd(t)
	g := bootVM(t, newMigratableVM(t, ns, "busy"))
	g.count()
	g.churn()
	bootID, from := g.bootID(), awaitRunning(t, ns, "busy").Status.NodeName

	// So little that the time is over before the memory was sent once: a guest that is emulated on a busy machine
	// changes less than a faster migration sends, and would arrive.
	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("6Mi")), CompletionTimeoutPerGiB: new(int64(12)), AllowWorkloadDisruption: new(false),
	})
	tooSlow := newMigration(ns, "busy")
	create(t, tooSlow)
	failed := awaitEnd(t, tooSlow, v1.MigrationFailed)
	if m := failed.Status.MigrationState; m == nil || !strings.Contains(m.FailureReason, "raise bandwidthPerMigration, which is 6 MiB/s") {
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

	// Slow enough that the guest stands still for longer than virt-handler may need to say so.
	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("4Mi")), CompletionTimeoutPerGiB: new(int64(2)), AllowWorkloadDisruption: new(true),
	})
	g = arrives(t, g, func() { awaitVMI(t, ns, "busy", "a guest that stands still", standsStill) })

	awaitPostCopy(t, possible)
	// Likewise, its memory may not be there before virt-handler lets it go ahead of it.
	limit(t, ns, "busy", migrationsv1.MigrationPolicySpec{
		BandwidthPerMigration: new(resource.MustParse("6Mi")), CompletionTimeoutPerGiB: new(int64(2)), AllowPostCopy: new(true),
	})
	g = arrives(t, g, func() {})
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	startedOnce(t, ns, "busy")
	how := awaitRunning(t, ns, "busy").Status.MigrationState
	if !possible {
		t.Log("figure converge: this kernel has no userfaultfd, so no guest moves before its memory")
		awaitNote(t, ns, "its launcher pod has no userfaultfd")
	} else if how.Mode != v1.MigrationPostCopy {
		t.Errorf("the guest has not moved before its memory: %+v", how)
	}
}

// arrives migrates a guest, calls see meanwhile, and finds the guest counting on the other node.
func arrives(t *testing.T, g *guest, see func()) *guest {
	t.Helper()
	from, counted := awaitRunning(t, g.namespace, g.name).Status.NodeName, g.counted()
	moves := newMigration(g.namespace, g.name)
	create(t, moves)
	see()
	awaitEnd(t, moves, v1.MigrationSucceeded)
	moved := awaitVMI(t, g.namespace, g.name, "Ready on the other node", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.NodeName != from && ready(vmi)
	})
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	g = login(t, g.namespace, g.name)
	if now := g.counted(); now < counted {
		t.Errorf("the guest has counted to %d after %d", now, counted)
	}
	return g
}

// letUserfaultfd allows userfaultfd for processes without capabilities until the test ends, as an administrator would,
// on the machine of the embedded cluster's nodes. It reports whether the kernel supports it at all.
func letUserfaultfd(t *testing.T) bool {
	t.Helper()
	const sysctl = "/proc/sys/vm/unprivileged_userfaultfd"
	was, err := os.ReadFile(sysctl)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatalf("reading the sysctl: %v", err)
	}
	if strings.TrimSpace(string(was)) == "1" {
		return true
	}
	if err := os.WriteFile(sysctl, []byte("1"), 0o644); err != nil {
		t.Fatalf("setting the sysctl (docs/installing.md has what an administrator does): %v", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(sysctl, was, 0o644); err != nil {
			t.Errorf("setting the sysctl back: %v", err)
		}
	})
	return true
}

func awaitPostCopy(t *testing.T, possible bool) {
	t.Helper()
	want := layout.PostCopyUnusable
	if possible {
		want = layout.PostCopyUsable
	}
	eventually(t, "nodes with the label "+layout.PostCopyLabel+"="+want, func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := cluster.client.List(ctx, &nodes, client.MatchingLabels{v1.NodeSchedulable: "true"}); err != nil {
			return err
		}
		for i := range nodes.Items {
			if says := nodes.Items[i].Labels[layout.PostCopyLabel]; says != want {
				return fmt.Errorf("node %s says %q", nodes.Items[i].Name, says)
			}
		}
		return nil
	})
}

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
