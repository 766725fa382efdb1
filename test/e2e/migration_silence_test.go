//go:build e2e

package e2e

import (
	"context"
	"flag"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// It takes minutes: see `make soak`.
var silence = flag.Bool("migration.silence", false, "wait until a migration is given up whose source is gone for good")

// TestASourceThatIsGoneForGood kills virt-handler at the source whenever it starts. Its migration must be given
// up, and the guest run on. When virt-handler is back, the VMI must show it, and migrate again. Only a node keeps
// a QEMU without its virt-handler. Not parallel: it kills parts that other tests need.
func TestASourceThatIsGoneForGood(t *testing.T) {
	if !*silence {
		t.Skip("it takes minutes: make soak runs it")
	}
	ns := newNamespace(t)
	limit(t, ns, "left", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: new(resource.MustParse("1Mi"))})
	g := bootVM(t, newMigratableVM(t, ns, "left"))
	bootID, from := g.bootID(), awaitRunning(t, ns, "left").Status.NodeName
	m := newMigration(ns, "left")
	create(t, m)
	awaitVMI(t, ns, "left", "how far it is", func(vmi *v1.VirtualMachineInstance) bool {
		return condition.Find(vmi.Status.Conditions, vmistatus.MigrationProgress) != nil
	})
	revive := keepDead(t, string(handlerPod(t, from).UID))
	gone := time.Now()
	failed := awaitEnd(t, m, v1.MigrationFailed)
	if s := failed.Status.MigrationState; s == nil || !strings.Contains(s.FailureReason, "virt-handler on node "+from+", which sends the guest, has not been heard of") {
		t.Errorf("the migration says %+v", s)
	} else {
		t.Logf("figure silence: after %v: %s", time.Since(gone).Round(time.Second), s.FailureReason)
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "left"}, vmi); err != nil {
		t.Fatalf("reading the VMI: %v", err)
	}
	if s := vmi.Status.MigrationState; s.Failed || s.Completed || vmi.Status.NodeName != from {
		t.Errorf("without its virt-handler the VMI on %s says %+v", vmi.Status.NodeName, s)
	}
	revive()
	back := awaitVMI(t, ns, "left", "the end of the migration", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.MigrationState.Failed && condition.Find(vmi.Status.Conditions, vmistatus.MigrationProgress) == nil && ready(vmi)
	})
	awaitOneLauncher(t, back, from)
	limit(t, ns, "left", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: new(resource.MustParse("256Mi"))})
	again := newMigration(ns, "left")
	create(t, again)
	awaitEnd(t, again, v1.MigrationSucceeded)
	g = login(t, ns, "left")
	awaitOneLauncher(t, back, otherThan(from))
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	startedOnce(t, ns, "left")
}

// keepDead kills virt-handler in a pod whenever it starts, until revive is called.
func keepDead(t *testing.T, pod string) (revive func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var killing sync.WaitGroup
	killing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			processes, err := proc.OfPod(pod)
			if err != nil {
				t.Errorf("looking for virt-handler: %v", err)
			}
			for _, p := range processes {
				if p.Name() == "virt" {
					// It may have ended by itself.
					_ = syscall.Kill(p.PID, syscall.SIGKILL)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	revive = func() {
		cancel()
		killing.Wait()
	}
	t.Cleanup(revive)
	return revive
}
