//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestATargetThatCannotBeHadSaysWhy creates migrations of one guest whose target pod finds no node, or does not start
// there. Each must soon give the reason, in the real scheduler's or kubelet's words, and leave nothing behind when it
// is canceled or given up; the guest must run on. Without the obstacle it must migrate, at last because its own node
// has no room for its new size. Not parallel: nodes are full meanwhile, and no guest's pod starts.
func TestATargetThatCannotBeHadSaysWhy(t *testing.T) {
	ns := newNamespace(t)
	g := bootVM(t, evictable(withMemoryRoom(newMigratableVM(t, ns, "stays"))))
	s := staying{vmi: awaitMigratable(t, ns, "stays"), bootID: g.bootID(), budgets: budgets(t, ns)}
	noNode := func() *v1.VirtualMachineInstanceMigration {
		m := newMigration(ns, "stays")
		m.Spec.AddedNodeSelector = map[string]string{"drydock.dev/such-a-node": "none"}
		return m
	}
	inTurn(t,
		chapter{"no node is as it is to be", func(t *testing.T) {
			s.in(t).isCanceled(noNode(), "the scheduler finds no node for the target pod", "the migration's addedNodeSelector asks for drydock.dev/such-a-node=none")
		}},
		chapter{"no node is as it is to be, for longer than it waits", func(t *testing.T) {
			m := noNode()
			m.Annotations = map[string]string{v1.MigrationUnschedulablePodTimeoutSecondsAnnotation: "5"}
			s.in(t).fails(m, "the scheduler finds no node for the target pod", "drydock.dev/such-a-node=none", "5s after it was made")
		}},
		chapter{"the other node is full", func(t *testing.T) {
			filler := fill(t, ns, otherThan(s.vmi.Status.NodeName))
			s.in(t).isCanceled(newMigration(ns, "stays"), "the scheduler finds no node for the target pod", "Insufficient memory")
			deleteObject(t, filler)
			awaitGone(t, filler)
		}},
		chapter{"an image that the node can't get", func(t *testing.T) {
			// This applies to guests' pods only; spec.imagePullPolicy is for Drydock's own pods, too.
			configure(t, `{"spec":{"configuration":{"imagePullPolicy":"Always"}}}`, `{"spec":{"configuration":{"imagePullPolicy":null}}}`)
			s.in(t).isCanceled(newMigration(ns, "stays"), "virt-launcher")
		}},
		chapter{"guests of the other node run with something else", func(t *testing.T) { migratesToWhatItRunsWith(t, s.in(t)) }},
		chapter{"its own node is full, which it leaves to grow", func(t *testing.T) { leavesAFullNodeToGrow(t, login(t, ns, "stays")) }},
	)
}

type staying struct {
	t       *testing.T
	guest   *guest
	vmi     *v1.VirtualMachineInstance
	bootID  string
	budgets string
}

func (s staying) in(t *testing.T) *staying {
	t.Helper()
	s.t, s.guest = t, login(t, s.vmi.Namespace, s.vmi.Name)
	return &s
}

// isCanceled creates a migration, which must soon give the reason for its wait, and cancels it.
func (s *staying) isCanceled(m *v1.VirtualMachineInstanceMigration, says ...string) {
	s.t.Helper()
	create(s.t, m)
	awaitMigration(s.t, m, fmt.Sprintf("%q", says), func(m *v1.VirtualMachineInstanceMigration) bool {
		if m.IsFinal() {
			s.t.Fatalf("the migration is %s: %+v", m.Status.Phase, m.Status.MigrationState)
		}
		return hasAll(waitsFor(m), says)
	})
	deleteObject(s.t, m)
	awaitGone(s.t, m)
	s.goesOn()
}

// fails creates a migration, which must fail with the reason.
func (s *staying) fails(m *v1.VirtualMachineInstanceMigration, says ...string) {
	s.t.Helper()
	create(s.t, m)
	ended := awaitEnd(s.t, m, v1.MigrationFailed)
	if state := ended.Status.MigrationState; state == nil || !hasAll(state.FailureReason, says) {
		s.t.Errorf("the migration has failed with %+v, want %q", state, says)
	}
	s.goesOn()
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// goesOn checks that the guest is in the same single pod, and that no migration has left anything.
func (s *staying) goesOn() {
	s.t.Helper()
	awaitOneLauncher(s.t, s.vmi, s.vmi.Status.NodeName)
	if s.guest.bootID() != s.bootID {
		s.t.Error("the guest was started again")
	}
	if now := budgets(s.t, s.vmi.Namespace); now != s.budgets {
		s.t.Errorf("the budgets are %s, and were %s", now, s.budgets)
	}
	now := awaitVMI(s.t, s.vmi.Namespace, s.vmi.Name, "one pod", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Running && len(vmi.Status.ActivePods) == 1
	})
	if now.Status.NodeName != s.vmi.Status.NodeName {
		s.t.Errorf("the VMI is on node %s, and was on %s", now.Status.NodeName, s.vmi.Status.NodeName)
	}
}

func budgets(t *testing.T, ns string) string {
	t.Helper()
	var list policyv1.PodDisruptionBudgetList
	if err := cluster.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatalf("listing the budgets: %v", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return fmt.Sprintf("%q", names)
}
