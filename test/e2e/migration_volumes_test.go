//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// A long run needs more strikes than every run can afford.
var volumeKills = flag.Int("migration.volumekills", 4, "how many storage migrations are interrupted at a random moment")

// dataSize is the size of a local VM's second disk, pluggedSize that of its hotplugged disk.
const dataSize, pluggedSize = "48Mi", "16Mi"

// newLocalVM returns a VM with two disks on local storage of its future node.
func newLocalVM(t *testing.T, ns, name string) *v1.VirtualMachine {
	t.Helper()
	root := newDataVolume(ns, name+"-root", "64Mi", cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://" + guestImage), PullMethod: new(cdiv1.RegistryPullNode),
	}})
	data := newDataVolume(ns, name+"-data", dataSize, cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	for _, dv := range []*cdiv1.DataVolume{root, data} {
		dv.Annotations = nil // so it is bound where the VM fits
		create(t, dv)
	}
	vmi := newVMI(ns, name)
	vmi.Labels = map[string]string{"vm": name}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: root.Name}}},
		{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: data.Name}}},
	}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
		Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	return newVM(vmi, v1.RunStrategyAlways)
}

// newDestinations makes claims to which a local VM's disks can move, and returns them by volume: one is an empty claim,
// and the other belongs to a DataVolume of the given size. Neither has a node yet.
func newDestinations(t *testing.T, ns, name string, round int, size string) map[string]v1.VolumeSource {
	t.Helper()
	like := &corev1.PersistentVolumeClaim{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name + "-root"}, like); err != nil {
		t.Fatal(err)
	}
	root := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("%s-root-%d", name, round)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: like.Spec.AccessModes, StorageClassName: like.Spec.StorageClassName, Resources: like.Spec.Resources, VolumeMode: like.Spec.VolumeMode,
		},
	}
	data := newDataVolume(ns, fmt.Sprintf("%s-data-%d", name, round), size, cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	data.Annotations = nil
	create(t, root)
	create(t, data)
	return map[string]v1.VolumeSource{
		"root": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: root.Name}}},
		"data": {DataVolume: &v1.DataVolumeSource{Name: data.Name}},
	}
}

// The change starts a storage migration.
func nameClaims(t *testing.T, ns, name string, claims map[string]v1.VolumeSource) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		vm := &v1.VirtualMachine{}
		if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, vm); err != nil {
			return err
		}
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		for i := range vm.Spec.Template.Spec.Volumes {
			if v := &vm.Spec.Template.Spec.Volumes[i]; claims[v.Name] != (v1.VolumeSource{}) {
				v.VolumeSource = claims[v.Name]
			}
		}
		return cluster.client.Update(t.Context(), vm)
	})
	if err != nil {
		t.Fatalf("naming other claims in the template of %s: %v", name, err)
	}
}

func sources(spec *v1.VirtualMachineInstanceSpec) map[string]v1.VolumeSource {
	out := map[string]v1.VolumeSource{}
	for _, v := range spec.Volumes {
		out[v.Name] = v.VolumeSource
	}
	return out
}

// claims returns the sorted claims of volumes.
func claims(of map[string]v1.VolumeSource) []string {
	var out []string
	for _, source := range of {
		switch {
		case source.PersistentVolumeClaim != nil:
			out = append(out, source.PersistentVolumeClaim.ClaimName)
		case source.DataVolume != nil:
			out = append(out, source.DataVolume.Name)
		}
	}
	return slices.Sorted(slices.Values(out))
}

// awaitOnClaims waits until a VMI has no migration in flight, and its spec and its only pod name the claims.
func awaitOnClaims(t *testing.T, ns, name string, of map[string]v1.VolumeSource) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := awaitVMI(t, ns, name, fmt.Sprintf("the claims %v", claims(of)), func(vmi *v1.VirtualMachineInstance) bool {
		return slices.Equal(claims(sources(&vmi.Spec)), claims(of)) && len(vmi.Status.ActivePods) == 1 && len(vmi.Status.MigratedVolumes) == 0
	})
	awaitOneLauncher(t, vmi, vmi.Status.NodeName)
	for _, pod := range launcherPods(t, vmi) {
		if got := mountedClaims(&pod); !slices.Equal(got, claims(unplugged(of))) {
			t.Fatalf("the pod %s has the claims %v, and the VMI names %v", pod.Name, got, claims(of))
		}
	}
	return vmi
}

func unplugged(of map[string]v1.VolumeSource) map[string]v1.VolumeSource {
	out := maps.Clone(of)
	maps.DeleteFunc(out, func(_ string, source v1.VolumeSource) bool {
		return source.DataVolume != nil && source.DataVolume.Hotpluggable
	})
	return out
}

func mountedClaims(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return slices.Sorted(slices.Values(out))
}

// awaitNoMove waits until the VM has no record of a storage migration, and neither needs a restart nor a recovery.
func awaitNoMove(t *testing.T, ns, name string) {
	t.Helper()
	awaitVM(t, ns, name, "no trace of a storage migration", func(vm *v1.VirtualMachine) bool {
		c := vm.Status.Conditions
		return vm.Status.VolumeUpdateState == nil && condition.Find(c, v1.VirtualMachineRestartRequired) == nil &&
			condition.Find(c, v1.VirtualMachineManualRecoveryRequired) == nil
	})
}

func plugLocal(t *testing.T, vm *v1.VirtualMachine) {
	t.Helper()
	dv := newDataVolume(vm.Namespace, vm.Name+"-plugged", pluggedSize, cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	dv.Annotations = nil
	create(t, dv)
	spec := &vm.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "plugged", VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: dv.Name, Hotpluggable: true}}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
		Name: "plugged", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
	})
}

func newPluggedDestination(t *testing.T, ns, name string, round int) v1.VolumeSource {
	t.Helper()
	dv := onDevice(newDataVolume(ns, fmt.Sprintf("%s-plugged-%d", name, round), pluggedSize, cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}))
	dv.Annotations = nil
	create(t, dv)
	return v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: dv.Name, Hotpluggable: true}}
}

func awaitPlugged(t *testing.T, ns, name, claim string) {
	t.Helper()
	awaitVMI(t, ns, name, "the plugged disk on "+claim, func(vmi *v1.VirtualMachineInstance) bool {
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == "plugged" {
				return s.Phase == v1.VolumeReady && s.PersistentVolumeClaimInfo.ClaimName == claim && len(s.PersistentVolumeClaimInfo.AccessModes) > 0
			}
		}
		return false
	})
}

// TestLocalDisksMigrateWithTheirGuest moves a guest with three disks on local storage to the other node and to other
// claims, while it writes to all of them. One is hotplugged, and moves from a file to a device; one moves to a larger
// claim, and must be larger in the running guest. internal/rules/migration/volumemigration covers the claims that a VM,
// a VMI and a pod name; only a guest knows the content of its disks. In the end the VM is deleted, and there must be no
// warning from the import on.
func TestLocalDisksMigrateWithTheirGuest(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	warnsOfNothing(t, ns)
	vm := newLocalVM(t, ns, "local")
	plugLocal(t, vm)
	g := bootVM(t, vm)
	awaitPlugged(t, ns, "local", "local-plugged")
	g.sees("its disks", "ls /sys/block | grep -c '^[sv]d'", "3")
	g.run("echo kept >/dev/vdb; sync")
	kept, before := g.keepJournals(), g.sizeOf("vdb")
	delete(kept, "vdb") // the journal is at the end of the disk, so it moves when the disk grows
	vmi, bootID := awaitRunning(t, ns, "local"), g.bootID()
	old, to := sources(&vmi.Spec), newDestinations(t, ns, "local", 1, "96Mi")
	to["plugged"] = newPluggedDestination(t, ns, "local", 1)
	nameClaims(t, ns, "local", to)
	moved := awaitOnClaims(t, ns, "local", to)
	if moved.UID != vmi.UID || moved.Status.NodeName == vmi.Status.NodeName {
		t.Fatalf("the VMI %s on %s is %s on %s", vmi.UID, vmi.Status.NodeName, moved.UID, moved.Status.NodeName)
	}
	awaitNoMove(t, ns, "local")
	awaitPlugged(t, ns, "local", to["plugged"].DataVolume.Name)
	g = login(t, ns, "local")
	kept.check(g)
	g.hasGrown("vdb", "data", before)
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	for _, claim := range claims(old) {
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim}}
		deleteObject(t, dv)
		awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim}})
	}
	immovable := awaitVMI(t, ns, "local", "LiveMigratable False", func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
		return c != nil && c.Status == corev1.ConditionFalse
	})
	kept.check(g)
	do(t, ns, "restart", "local")
	again := awaitVMI(t, ns, "local", "another VMI", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.UID != immovable.UID && vmi.Status.Phase == v1.Running
	})
	if got := claims(sources(&again.Spec)); !slices.Equal(got, claims(to)) {
		t.Errorf("the VM was started again with %v, want %v", got, claims(to))
	}
	deleteObject(t, vm)
	awaitGone(t, again)
}

func (g *guest) sizeOf(disk string) int64 {
	g.t.Helper()
	sectors, err := strconv.ParseInt(g.run("cat /sys/block/"+disk+"/size"), 10, 64)
	if err != nil {
		g.t.Fatal(err)
	}
	return sectors * 512
}

// hasGrown waits until a disk of the guest is larger than before, in its volume's status, too; its content must be the
// same.
func (g *guest) hasGrown(disk, volume string, before int64) {
	g.t.Helper()
	eventually(g.t, "a larger disk", func(context.Context) error {
		if now := g.sizeOf(disk); now <= before+40<<20 {
			return fmt.Errorf("it has %d bytes, and had %d", now, before)
		}
		return nil
	})
	if kept := g.run("head -n 1 /dev/" + disk); kept != "kept" {
		g.t.Errorf("the disk begins with %q", kept)
	}
	awaitVMI(g.t, g.namespace, g.name, "the disk's size in the status", func(vmi *v1.VirtualMachineInstance) bool {
		s := volumeStatus(vmi, volume)
		return s != nil && s.Size == g.sizeOf(disk)
	})
}

// migrationUnderWay returns a migration of the VM that has not ended: Drydock's, or a new one.
func migrationUnderWay(t *testing.T, ns, name string) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	var found *v1.VirtualMachineInstanceMigration
	eventually(t, "a migration of "+name, func(ctx context.Context) error {
		for _, m := range migrationsIn(t, ns) {
			if m.Spec.VMIName == name && !m.IsFinal() && m.DeletionTimestamp == nil {
				found = m
				return nil
			}
		}
		found = newMigration(ns, name)
		return cluster.client.Create(ctx, found) // refused if Drydock has made one meanwhile
	})
	return found
}

// TestStorageMigrationsAreInterruptedAtRandom strikes at random moments at a storage migration, or deletes it.
// The guest must run on; VMI and pod must name the same claims; nothing may be lost. Drydock must migrate it
// again by itself. Only real processes die in the middle of a step. Not parallel: it kills parts that other tests
// need.
func TestStorageMigrationsAreInterruptedAtRandom(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	c := newCampaign(t, ns, map[string]int{storageMigration: *volumeKills})
	vm := newLocalVM(t, ns, "local")
	plugLocal(t, vm)
	c.storageLane(vm, "vda", "vdb", "sda")
	c.run(t)
}

// storageMigration is the kind of migration in which a guest's claims change.
const storageMigration = "storage migration"

type moving struct {
	*lane
	from, to map[string]v1.VolumeSource
	round    int
}

// storageLane adds a guest whose migrations are storage migrations. The guest must not end: a user would have to tell
// its VM which claims are valid.
func (c *campaign) storageLane(vm *v1.VirtualMachine, disks ...string) {
	s := &moving{lane: c.lane(vm, disks...)}
	s.kind, s.begin, s.settled, s.rest = storageMigration, s.next, s.consistent, s.arrive
	s.victims = nil
	for _, v := range ownVictims() {
		if v.with != always {
			s.victims = append(s.victims, unlessSent(v))
		}
	}
}

// unlessSent spares a victim from the moment when the guest may end with it.
func unlessSent(v victim) victim {
	find := v.find
	v.find = func(t *testing.T, vmi *v1.VirtualMachineInstance, uid types.UID) func() {
		if v.with == onceSent && sent(vmi, uid) {
			return nil
		}
		return find(t, vmi, uid)
	}
	return v
}

// next begins a storage migration, or finds the one that Drydock has begun, and waits for its target.
func (s *moving) next() *v1.VirtualMachineInstanceMigration {
	name := s.vm.Name
	for s.to == nil || s.hasArrived(awaitVMI(s.t, s.ns, name, "LiveMigratable, or its new claims", func(vmi *v1.VirtualMachineInstance) bool {
		ready := len(vmi.Status.MigratedVolumes) == 3 && condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
		return ready || slices.Equal(claims(sources(&vmi.Spec)), claims(s.to))
	})) {
		s.round++
		s.from, s.to = sources(&s.reads().Spec), newDestinations(s.t, s.ns, name, s.round, dataSize)
		s.to["plugged"] = newPluggedDestination(s.t, s.ns, name, s.round)
		nameClaims(s.t, s.ns, name, s.to)
	}
	m := migrationUnderWay(s.t, s.ns, name)
	return awaitMigration(s.t, m, "its target", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() || m.TargetIsHandedOff() })
}

func (s *moving) consistent(after string) {
	s.hasArrived(awaitConsistent(s.t, s.ns, s.vm.Name, after, s.from, s.to))
}

// arrive waits until the guest is on its new claims. Drydock migrates it again by itself, and consoles end meanwhile.
func (s *moving) arrive() {
	if s.to != nil {
		awaitOnClaims(s.t, s.ns, s.vm.Name, s.to)
		s.to = nil
	}
}

// hasArrived reports whether the guest is on its new claims, and waits until everything else is gone.
func (s *moving) hasArrived(now *v1.VirtualMachineInstance) bool {
	if !slices.Equal(claims(sources(&now.Spec)), claims(s.to)) {
		return false
	}
	awaitOnClaims(s.t, s.ns, s.vm.Name, s.to)
	s.to = nil
	return true
}

// awaitConsistent waits until a VMI and its guest's pod name the same claims, either the old ones or the new ones.
func awaitConsistent(t *testing.T, ns, name, after string, from, to map[string]v1.VolumeSource) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	eventually(t, "a guest on the claims that its VMI names, after "+after, func(ctx context.Context) error {
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, vmi); err != nil {
			return err
		}
		named := claims(sources(&vmi.Spec))
		if !slices.Equal(named, claims(from)) && !slices.Equal(named, claims(to)) {
			t.Fatalf("the VMI names %v, neither %v nor %v", named, claims(from), claims(to))
		}
		for _, pod := range launcherPods(t, vmi) {
			mounts := slices.Equal(mountedClaims(&pod), claims(unplugged(sources(&vmi.Spec))))
			if pod.Spec.NodeName == vmi.Status.NodeName && pod.Status.Phase == corev1.PodRunning && mounts && ready(vmi) {
				return nil
			}
		}
		return fmt.Errorf("on %s no pod with %v runs; %+v", vmi.Status.NodeName, named, vmi.Status.Conditions)
	})
	return vmi
}

// TestAStorageMigrationIsTakenBack names the old claims again during the copy. The next time it stops the VM,
// which must not start with the copies. volumemigration covers the claims; only the guest knows the content of
// the disks.
func TestAStorageMigrationIsTakenBack(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	slowly(t, ns, "hesitant")
	g := bootVM(t, newLocalVM(t, ns, "hesitant"))
	kept, bootID := g.keepJournals(), g.bootID()
	vmi := awaitRunning(t, ns, "hesitant")
	old, to := sources(&vmi.Spec), newDestinations(t, ns, "hesitant", 1, dataSize)
	copying := func() {
		t.Helper()
		nameClaims(t, ns, "hesitant", to)
		awaitVMI(t, ns, "hesitant", "a migration that has begun", func(vmi *v1.VirtualMachineInstance) bool {
			m := vmi.Status.MigrationState
			return m != nil && !m.Failed && m.TargetNodeAddress != ""
		})
	}
	copying()
	nameClaims(t, ns, "hesitant", old)
	awaitOnClaims(t, ns, "hesitant", old)
	awaitNoMove(t, ns, "hesitant")
	kept.check(g)
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}

	copying()
	do(t, ns, "stop", "hesitant", "--force", "--grace-period=0")
	awaitGone(t, vmi)
	awaitVM(t, ns, "hesitant", "ManualRecoveryRequired", func(vm *v1.VirtualMachine) bool {
		return condition.IsTrue(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired) && vm.Status.PrintableStatus == v1.VirtualMachineStatusStopped
	})
	nameClaims(t, ns, "hesitant", old)
	awaitVM(t, ns, "hesitant", "the end of ManualRecoveryRequired", func(vm *v1.VirtualMachine) bool {
		return !condition.IsTrue(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired)
	})
	do(t, ns, "start", "hesitant")
	again := awaitRunning(t, ns, "hesitant")
	if got := claims(sources(&again.Spec)); !slices.Equal(got, claims(old)) {
		t.Errorf("the VM was started with %v, want %v", got, claims(old))
	}
	awaitNoMove(t, ns, "hesitant")
}
