//go:build e2e

package e2e

import (
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A long run asks for more than every run can afford: see `make soak`.
var killsFor = flag.Int("migration.kills", 12, "how many migrations are interrupted at a random moment")

// longestTransfer is about how long the test guest's migration takes; kills come within it.
const longestTransfer = 1500 * time.Millisecond

// TestMigrationsAreInterruptedAtRandom kills or deletes, at a random moment of each migration, one
// of those that take part in it, but not the guest: the guest goes on counting and writing to its disks,
// each time in one place, has lost nothing, and nothing is left of the other. Not parallel: it breaks what
// the other tests stand on.
func TestMigrationsAreInterruptedAtRandom(t *testing.T) {
	for name, newVM := range map[string]func(*testing.T, string, string) *v1.VirtualMachine{
		"with a shared disk": newMigratableVM, "with the disks of its pod": newPodDiskVM,
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			interruptsAtRandom(t, ns, bootVM(t, newVM(t, ns, "harried")), (*killsFor+1)/2)
		})
	}
}

// interruptsAtRandom interrupts so many migrations of the VM.
func interruptsAtRandom(t *testing.T, ns string, g *guest, kills int) {
	t.Helper()
	g.count()
	journals := g.keepJournals()
	bootID, instance := g.bootID(), instanceUID(t, ns, "harried")
	ends := map[v1.VirtualMachineInstanceMigrationPhase]int{}
	for i := range kills {
		victims := interruptions()
		victim := victims[i%len(victims)]
		vmi := awaitRunning(t, ns, "harried")
		m := newMigration(ns, "harried")
		create(t, m)
		moment := rand.N(longestTransfer)
		time.Sleep(moment)
		victim.interrupt(t, vmi, m)
		end := endOf(t, m)
		ends[end]++
		now := awaitVMI(t, ns, "harried", "Ready", ready)
		if now.UID != instance {
			t.Fatalf("%s was killed after %v (migration %s): the VMI is another one", victim.name, moment, end)
		}
		awaitOneLauncher(t, now, now.Status.NodeName)
		startedOnce(t, ns, "harried")
		if i%10 == 9 || i == kills-1 {
			g = login(t, ns, "harried")
			counted := g.counted()
			if g.bootID() != bootID || g.counted() < counted {
				t.Fatalf("the guest was started again, or stands still (%s was killed after %v)", victim.name, moment)
			}
			journals.check(g)
		}
	}
	t.Logf("figure migration: %d migrations were interrupted; they ended %v", kills, ends)
}

// endOf waits until a migration has ended, and says how. One that was deleted has failed, or come
// to its end before.
func endOf(t *testing.T, m *v1.VirtualMachineInstanceMigration) v1.VirtualMachineInstanceMigrationPhase {
	t.Helper()
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err == nil && m.DeletionTimestamp == nil {
		return awaitMigration(t, m, "its end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() }).Status.Phase
	}
	awaitGone(t, m)
	return "Canceled"
}

// interruption is what happens to a migration.
type interruption struct {
	name      string
	interrupt func(*testing.T, *v1.VirtualMachineInstance, *v1.VirtualMachineInstanceMigration)
}

func interruptions() []interruption {
	return []interruption{
		{"the source's virt-handler", func(t *testing.T, vmi *v1.VirtualMachineInstance, _ *v1.VirtualMachineInstanceMigration) {
			killIn(t, handlerPod(t, vmi.Status.NodeName), "virt")
		}},
		{"the target's virt-handler", func(t *testing.T, vmi *v1.VirtualMachineInstance, _ *v1.VirtualMachineInstanceMigration) {
			killIn(t, handlerPod(t, otherNode(vmi.Status.NodeName)), "virt")
		}},
		{"the target's QEMU", func(t *testing.T, vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration) {
			killTarget(t, vmi, m, "qemu-system-x86_64")
		}},
		{"the target's virt-launcher", func(t *testing.T, vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration) {
			killTarget(t, vmi, m, "virt-launcher")
		}},
		{"virt-controller", func(t *testing.T, _ *v1.VirtualMachineInstance, _ *v1.VirtualMachineInstanceMigration) {
			killController(t)
		}},
		{"the migration", func(t *testing.T, _ *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration) {
			deleteObject(t, m)
		}},
	}
}

func otherNode(node string) string {
	if node == node1 {
		return node2
	}
	return node1
}

// killTarget kills a program in the target's pod, unless the guest is there by now: it would be the
// guest's end.
func killTarget(t *testing.T, vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration, program string) {
	t.Helper()
	for _, pod := range launcherPods(t, vmi) {
		if pod.Labels[v1.MigrationJobLabel] != string(m.UID) || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		now := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name}}
		if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			t.Fatal(err)
		}
		if s := now.Status.MigrationState; s != nil && s.MigrationUID == m.UID && s.StartTimestamp != nil {
			return // the guest may arrive at any moment
		}
		killIn(t, &pod, program)
	}
}

// killIn kills a program in a pod, if it runs there.
func killIn(t *testing.T, pod *corev1.Pod, program string) {
	t.Helper()
	for _, pid := range programIn(t, pod, program) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatalf("killing %s in %s: %v", program, pod.Name, err)
		}
	}
}
