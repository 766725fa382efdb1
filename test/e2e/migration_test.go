//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newMigratableVM returns a VM whose disk every node reaches, on the pod network with masquerade.
func newMigratableVM(t *testing.T, ns, name string) *v1.VirtualMachine {
	t.Helper()
	root := newDataVolume(ns, name+"-root", "64Mi", cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://" + guestImage), PullMethod: new(cdiv1.RegistryPullNode),
	}})
	root.Spec.Storage.StorageClassName = new(classShared)
	root.Spec.Storage.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, root)
	vmi := newVMI(ns, name)
	vmi.Labels = map[string]string{"vm": name}
	vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: root.Name}}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	return newVM(vmi, v1.RunStrategyAlways)
}

// identity returns the facts that a guest must keep wherever it runs. It waits for the first card's address: the login
// may come before that.
func (g *guest) identity() string {
	g.t.Helper()
	g.run("until ip -o -4 addr show dev eth0 scope global | grep -q inet; do sleep 0.1; done")
	return g.bootID() + " " + g.run("cat /sys/class/net/e*/address; ip -o addr show scope global | awk '{print $4}'; cat /sys/class/dmi/id/product_uuid 2>/dev/null || true")
}

func newMigration(ns, name string) *v1.VirtualMachineInstanceMigration {
	return &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: name + "-"},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: name},
	}
}

// awaitMigration waits until seen accepts the migration.
func awaitMigration(t *testing.T, m *v1.VirtualMachineInstanceMigration, what string, seen func(*v1.VirtualMachineInstanceMigration) bool) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	return await(t, m, &v1.VirtualMachineInstanceMigrationList{}, what, seen)
}

func awaitEnd(t *testing.T, m *v1.VirtualMachineInstanceMigration, phase v1.VirtualMachineInstanceMigrationPhase) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	ended := awaitMigration(t, m, "its end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() })
	if ended.Status.Phase != phase {
		t.Fatalf("migration %s is %s, want %s: %+v", m.Name, ended.Status.Phase, phase, ended.Status.MigrationState)
	}
	return ended
}

func awaitTransfer(t *testing.T, m *v1.VirtualMachineInstanceMigration) {
	t.Helper()
	awaitMigration(t, m, "phase Running", func(m *v1.VirtualMachineInstanceMigration) bool {
		if m.IsFinal() {
			t.Fatalf("migration %s ended too early: %s, %+v", m.Name, m.Status.Phase, m.Status.MigrationState)
		}
		return m.Status.Phase == v1.MigrationRunning
	})
}

func awaitOneLauncher(t *testing.T, vmi *v1.VirtualMachineInstance, node string) {
	t.Helper()
	eventually(t, "one launcher pod of "+vmi.Name+" on "+node, func(context.Context) error {
		pods := launcherPods(t, vmi)
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning || pods[i].Spec.NodeName != node || len(pods) != 1 {
				return fmt.Errorf("%d pods; %s is %s on %s", len(pods), pods[i].Name, pods[i].Status.Phase, pods[i].Spec.NodeName)
			}
		}
		return nil
	})
}

func migrated(t *testing.T, ns, name string) *v1.VirtualMachineInstance {
	t.Helper()
	before := awaitRunning(t, ns, name)
	do(t, ns, "migrate", name)
	return awaitMoved(t, before)
}

func awaitMoved(t *testing.T, before *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	t.Helper()
	var last types.UID
	if m := before.Status.MigrationState; m != nil {
		last = m.MigrationUID
	}
	moved := awaitVMI(t, before.Namespace, before.Name, "another node", func(vmi *v1.VirtualMachineInstance) bool {
		m := vmi.Status.MigrationState
		if m != nil && m.Failed && m.MigrationUID != last {
			t.Fatalf("the migration failed: %s", m.FailureReason)
		}
		return vmi.Status.NodeName != before.Status.NodeName && m != nil && m.Completed
	})
	// The VMI reports the end before the migration does, and another migration is refused until then.
	eventually(t, "the end of the migration", func(context.Context) error {
		if m := migrationOf(t, moved.Namespace, moved.Status.MigrationState.MigrationUID); m != nil && !m.IsFinal() {
			return fmt.Errorf("it is in phase %s", m.Status.Phase)
		}
		return nil
	})
	return moved
}

func slowly(t *testing.T, ns, name string) {
	t.Helper()
	policy := &migrationsv1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name},
		Spec: migrationsv1.MigrationPolicySpec{
			BandwidthPerMigration: new(resource.MustParse("1Mi")),
			Selectors: &migrationsv1.Selectors{
				NamespaceSelector:              migrationsv1.LabelSelector{corev1.LabelMetadataName: ns},
				VirtualMachineInstanceSelector: migrationsv1.LabelSelector{"vm": name},
			},
		},
	}
	create(t, policy)
	t.Cleanup(func() { deleteObject(t, policy) })
}

// TestAGuestMigrates moves a guest that writes to another node. It must lose no write, and be the same to itself and to
// others; nothing may be left on the old node. switchover explores the decisions; only here a guest confirms them.
// TestHotpluggedDisksMigrate and TestAConnectionLivesThroughMigrations move guests back, too.
func TestAGuestMigrates(t *testing.T) {
	t.Parallel()
	t.Run("with the disks of its pod", func(t *testing.T) {
		t.Parallel()
		ns := newNamespace(t)
		vm := newPodDiskVM(t, ns, "moves")
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
		slowly(t, ns, "moves")
		bootVM(t, vm)
		var kept journals
		inTurn(t,
			chapter{"a target that hangs does not hold it up", func(t *testing.T) { kept = targetHangs(t, login(t, ns, "moves")) }},
			chapter{"it moves", func(t *testing.T) {
				limit(t, ns, "moves", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: new(resource.MustParse("256Mi"))})
				moves(t, login(t, ns, "moves"), kept, "there")
			}},
		)
	})
	t.Run("with a shared disk", func(t *testing.T) {
		t.Parallel()
		ns := newNamespace(t)
		warnsOfNothing(t, ns)
		vm := newMigratableVM(t, ns, "moves")
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
		m := newManifest(t, vm)
		awaitPrintable(t, ns, "moves", v1.VirtualMachineStatusRunning)
		g, first := login(t, ns, "moves"), m.now()
		m.knowsUUID(g)
		knew := g.run(self)
		create(t, toolsPod(ns, "peer"))
		awaitPodRunning(t, ns, "peer")
		deny := denyAll(t, ns)
		isUnreached(t, ns, guestAddress(t, g))
		moves(t, g, g.keepJournals(), "there")
		m.staysItself(knew, first)
		stillPoliced(t, g, deny)
	})
}

// stillPoliced checks that the policy holds at the guest's new address, and then deletes it.
func stillPoliced(t *testing.T, g *guest, deny *networkingv1.NetworkPolicy) {
	t.Helper()
	now := guestAddress(t, g)
	if out, err := inPod(t, g.namespace, "peer", asksEcho(now)); err == nil {
		t.Errorf("after the migration a pod that no policy admits reaches the guest: %q", out)
	}
	deleteObject(t, deny)
	isReached(t, g.namespace, now)
}

func movesThereAndBack(t *testing.T, g *guest) {
	t.Helper()
	moves(t, g, g.keepJournals(), "there", "back")
}

func moves(t *testing.T, g *guest, journals journals, turns ...string) {
	t.Helper()
	ns := g.namespace
	identity, uptime := g.identity(), g.uptime()
	vmi := awaitMigratable(t, ns, "moves")
	tpm := vmi.Spec.Domain.Devices.TPM != nil // not everywhere in tests between versions
	if tpm {
		g.fillTPM()
	}
	for _, turn := range turns {
		written := journals.written(g)
		moved := migrated(t, ns, "moves")
		if moved.UID != vmi.UID {
			t.Fatalf("%s: the VMI is another one", turn)
		}
		awaitOneLauncher(t, moved, moved.Status.NodeName)
		g = login(t, ns, "moves")
		if now := g.identity(); now != identity {
			t.Errorf("%s: the guest is %q, want %q", turn, now, identity)
		}
		for disk, now := range journals.written(g) {
			if now < written[disk] {
				t.Errorf("%s: the guest knows of %d writes to %s, and knew of %d", turn, now, disk, written[disk])
			}
		}
		if now := g.uptime(); now < uptime {
			t.Errorf("%s: the guest's uptime is %v, want more than %v", turn, now, uptime)
		}
		journals.check(g)
		if tpm {
			g.knowsTPM()
		}
		startedOnce(t, ns, "moves")
	}
	awaitVMI(t, ns, "moves", "Ready on its node", ready)
	toldOfDowntimes(t, ns, len(turns))
}

// toldOfDowntimes waits for one event with the guest's downtime per migration.
func toldOfDowntimes(t *testing.T, ns string, migrations int) {
	t.Helper()
	eventually(t, "events of the migrations", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		var told []string
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == v1.Migrated.String() && strings.Contains(e.Message, "it stood still for at most") {
				told = append(told, e.Message)
			}
		}
		if len(told) != migrations {
			return fmt.Errorf("%d events: %q", len(told), told)
		}
		t.Logf("figure migration: %s", strings.Join(told, "; "))
		return nil
	})
}

// TestAMigrationThatFailsLeavesTheGuestWhereItIs makes migrations of one guest fail in all ways that involve a real
// pod, QEMU or kubelet. The guest must never notice, and nothing may be left after a while. In the end its own pod is
// deleted, upon which the VM must start again, and the VM is stopped. The API server's tests and the exploration of
// internal/rules/migration/switchover cover the phases and loops, without a guest. All the while the guest is asked,
// in all its pods, whether it lives there, and its QEMUs log their run states: there must never be a second guest.
func TestAMigrationThatFailsLeavesTheGuestWhereItIs(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	slowly(t, ns, "stays")
	felt := feelPulses(t, ns)
	g := bootVM(t, withPulse(evictable(newMigratableVM(t, ns, "stays")), "vda"))
	s := staying{vmi: awaitMigratable(t, ns, "stays"), bootID: g.bootID(), budgets: budgets(t, ns)}
	inTurn(t,
		chapter{"it is canceled in each phase", func(t *testing.T) { isCanceledInEachPhase(t, s.in(t), felt) }},
		chapter{"the target's QEMU is killed", func(t *testing.T) { targetEnds(t, s.in(t)) }},
		chapter{"the target's pod is deleted by force", func(t *testing.T) {
			losesPod(t, ns, func(m *v1.VirtualMachineInstanceMigrationState) string { return m.TargetPod })
			s.in(t).goesOn()
			startedOnce(t, ns, "stays")
		}},
		chapter{"the guest's own pod is deleted by force", func(t *testing.T) {
			losesPod(t, ns, func(m *v1.VirtualMachineInstanceMigrationState) string { return m.SourcePod })
			awaitNextInstance(t, ns, "stays", s.vmi.UID)
			login(t, ns, "stays")
			startedOnce(t, ns, "stays")
		}},
		chapter{"the VM is stopped", func(t *testing.T) { stopsWhileItMigrates(t, ns) }},
	)
}

// isCanceledInEachPhase cancels a migration in each phase that has a target pod.
func isCanceledInEachPhase(t *testing.T, s *staying, felt *pulses) {
	t.Helper()
	ns := s.vmi.Namespace
	before := felt.awaitBeats(t, "stays", 0)
	for _, phase := range []v1.VirtualMachineInstanceMigrationPhase{
		v1.MigrationScheduling, v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning,
	} {
		m := newMigration(ns, "stays")
		create(t, m)
		seen := awaitMigration(t, m, "phase "+string(phase), func(m *v1.VirtualMachineInstanceMigration) bool { return reached(m, phase) })
		canceled := time.Now()
		do(t, ns, "migrate-cancel", "stays")
		awaitVMI(t, ns, "stays", "the end of the migration", func(vmi *v1.VirtualMachineInstance) bool {
			now := vmi.Status.MigrationState
			return len(vmi.Status.ActivePods) == 1 && (now == nil || now.MigrationUID != m.UID || now.Failed)
		})
		ended := time.Since(canceled)
		awaitGone(t, m)
		gone := time.Since(canceled)
		t.Logf("figure cancel: in phase %q it has ended after %.1f s, and its target pod after %.1f s", seen.Status.Phase, ended.Seconds(), gone.Seconds())
		s.goesOn()
	}
	if now := felt.awaitBeats(t, "stays", before.Beats); now.Boot != before.Boot {
		t.Errorf("the guest's boot is %s, and was %s", now.Boot, before.Boot)
	}
	startedOnce(t, ns, "stays")
}

func reached(m *v1.VirtualMachineInstanceMigration, phase v1.VirtualMachineInstanceMigrationPhase) bool {
	return m.Status.Phase == phase || slices.ContainsFunc(m.Status.PhaseTransitionTimestamps, func(p v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp) bool {
		return p.Phase == phase
	})
}

// beginsToMigrate starts a slow migration, waits until the guest is on its way, and returns both.
func beginsToMigrate(t *testing.T, ns, name string) (*v1.VirtualMachineInstanceMigration, *v1.VirtualMachineInstanceMigrationState) {
	t.Helper()
	awaitMigratable(t, ns, name)
	m := newMigration(ns, name)
	create(t, m)
	awaitTransfer(t, m)
	vmi := awaitVMI(t, ns, name, "both pods", func(vmi *v1.VirtualMachineInstance) bool {
		s := vmi.Status.MigrationState
		return s != nil && s.MigrationUID == m.UID && s.SourcePod != "" && s.TargetPod != ""
	})
	return m, vmi.Status.MigrationState
}

// targetEnds kills processes on the target's side: the migration must fail with the reason.
func targetEnds(t *testing.T, s *staying) {
	t.Helper()
	m, between := beginsToMigrate(t, s.vmi.Namespace, s.vmi.Name)
	target := awaitPodRunning(t, s.vmi.Namespace, between.TargetPod)
	if err := syscall.Kill(processOf(t, target, "qemu-system-x86_64"), syscall.SIGKILL); err != nil {
		t.Fatalf("killing the target's QEMU: %v", err)
	}
	failed := awaitEnd(t, m, v1.MigrationFailed)
	if state := failed.Status.MigrationState; state == nil || state.FailureReason == "" {
		t.Errorf("the migration does not say why it failed: %+v", state)
	}
	s.goesOn()
}

// Guest, target and migration must end, and nothing be left.
func stopsWhileItMigrates(t *testing.T, ns string) {
	t.Helper()
	m, _ := beginsToMigrate(t, ns, "stays")
	vmi := awaitRunning(t, ns, "stays")
	do(t, ns, "stop", "stays")
	awaitPrintable(t, ns, "stays", v1.VirtualMachineStatusStopped)
	awaitEnd(t, m, v1.MigrationFailed)
	awaitNoPods(t, vmi)
	eventually(t, "no QEMU of the VM", func(context.Context) error {
		if n := qemusOf(string(vmi.Spec.Domain.Firmware.UUID)); n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

func losesPod(t *testing.T, ns string, which func(*v1.VirtualMachineInstanceMigrationState) string) {
	t.Helper()
	m, between := beginsToMigrate(t, ns, "stays")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: which(between)}}
	if err := cluster.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("deleting the pod %s: %v", pod.Name, err)
	}
	awaitMigration(t, m, "its end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() })
}
