package clientgo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"kubevirt.io/client-go/kubecli"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// nowhere is a label that no node has: a machine that selects it stays without a guest.
var nowhere = map[string]string{"drydock.dev/nowhere": "true"}

func waiting(name string) v1.VirtualMachineInstanceSpec {
	spec := guestSpec(name)
	spec.NodeSelector = nowhere
	return spec
}

// fewestSequences is the minimal number of sequences of all kinds together.
const fewestSequences = 100

func TestEveryKindIsStored(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	group := "kubevirt.io"
	source := corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: "not-there"}
	kinds := map[string][]sequence{
		"VirtualMachine": storageOf(virt.VirtualMachine(namespace),
			func(l *v1.VirtualMachineList) []v1.VirtualMachine { return l.Items },
			func(vm *v1.VirtualMachine) {
				halted := v1.RunStrategyHalted
				vm.Spec = v1.VirtualMachineSpec{RunStrategy: &halted, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: guestSpec(vm.Name)}}
			}).sequences("vm"),
		"VirtualMachineInstance": storageOf(virt.VirtualMachineInstance(namespace),
			func(l *v1.VirtualMachineInstanceList) []v1.VirtualMachineInstance { return l.Items },
			func(vmi *v1.VirtualMachineInstance) { vmi.Spec = waiting(vmi.Name) }).sequences("vmi"),
		"VirtualMachineInstanceReplicaSet": storageOf(virt.ReplicaSet(namespace),
			func(l *v1.VirtualMachineInstanceReplicaSetList) []v1.VirtualMachineInstanceReplicaSet { return l.Items },
			func(rs *v1.VirtualMachineInstanceReplicaSet) { rs.Spec = replicas(0) }).sequences("rs"),
		"VirtualMachineSnapshot": storageOf(virt.VirtualMachineSnapshot(namespace),
			func(l *snapshotv1.VirtualMachineSnapshotList) []snapshotv1.VirtualMachineSnapshot { return l.Items },
			func(s *snapshotv1.VirtualMachineSnapshot) { s.Spec.Source = source }).sequences("snapshot"),
		"VirtualMachineRestore": storageOf(virt.VirtualMachineRestore(namespace),
			func(l *snapshotv1.VirtualMachineRestoreList) []snapshotv1.VirtualMachineRestore { return l.Items },
			func(r *snapshotv1.VirtualMachineRestore) {
				r.Spec = snapshotv1.VirtualMachineRestoreSpec{Target: source, VirtualMachineSnapshotName: "not-there"}
				r.Spec.Target.Name = r.Name
			}).sequences("restore"),
		"VirtualMachineClone": storageOf(virt.VirtualMachineClone(namespace),
			func(l *clonev1.VirtualMachineCloneList) []clonev1.VirtualMachineClone { return l.Items },
			func(c *clonev1.VirtualMachineClone) { c.Spec.Source = &source }).sequences("clone"),
		"MigrationPolicy": storageOf(virt.MigrationPolicy(),
			func(l *migrationsv1.MigrationPolicyList) []migrationsv1.MigrationPolicy { return l.Items },
			func(p *migrationsv1.MigrationPolicy) {
				p.Spec.Selectors = &migrationsv1.Selectors{NamespaceSelector: migrationsv1.LabelSelector{"kubernetes.io/metadata.name": namespace}}
			}).sequences(namespace),
		"DataVolume": storageOf(virt.CdiClient().CdiV1beta1().DataVolumes(namespace),
			func(l *cdiv1.DataVolumeList) []cdiv1.DataVolume { return l.Items },
			func(dv *cdiv1.DataVolume) {
				size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
				dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
				dv.Spec.Storage = &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: size}}
			}).sequences("dv"),
	}
	maps.Copy(kinds, kindsOfTypes(namespace))
	runKinds(t, kinds)
}

// runKinds runs each kind's sequences, the kinds in parallel.
func runKinds(t *testing.T, kinds map[string][]sequence) {
	t.Helper()
	count := 0
	for _, sequences := range kinds {
		count += len(sequences)
	}
	if count < fewestSequences {
		t.Errorf("there are %d sequences, want at least %d", count, fewestSequences)
	}
	for kind, sequences := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			runAll(t, sequences)
		})
	}
}

// The names of cluster-wide ones contain the namespace.
func kindsOfTypes(namespace string) map[string][]sequence {
	small := instancetypev1.VirtualMachineInstancetypeSpec{
		CPU: instancetypev1.CPUInstancetype{Guest: 1}, Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse("64Mi")},
	}
	virtio := instancetypev1.VirtualMachinePreferenceSpec{Devices: &instancetypev1.DevicePreferences{PreferredDiskBus: v1.DiskBusVirtio}}
	return map[string][]sequence{
		"VirtualMachineInstancetype": storageOf(virt.VirtualMachineInstancetype(namespace),
			func(l *instancetypev1.VirtualMachineInstancetypeList) []instancetypev1.VirtualMachineInstancetype {
				return l.Items
			},
			func(i *instancetypev1.VirtualMachineInstancetype) { i.Spec = small }).sequences("type"),
		"VirtualMachineClusterInstancetype": storageOf(virt.VirtualMachineClusterInstancetype(),
			func(l *instancetypev1.VirtualMachineClusterInstancetypeList) []instancetypev1.VirtualMachineClusterInstancetype {
				return l.Items
			},
			func(i *instancetypev1.VirtualMachineClusterInstancetype) { i.Spec = small }).sequences(namespace),
		"VirtualMachinePreference": storageOf(virt.VirtualMachinePreference(namespace),
			func(l *instancetypev1.VirtualMachinePreferenceList) []instancetypev1.VirtualMachinePreference {
				return l.Items
			},
			func(p *instancetypev1.VirtualMachinePreference) { p.Spec = virtio }).sequences("preference"),
		"VirtualMachineClusterPreference": storageOf(virt.VirtualMachineClusterPreference(),
			func(l *instancetypev1.VirtualMachineClusterPreferenceList) []instancetypev1.VirtualMachineClusterPreference {
				return l.Items
			},
			func(p *instancetypev1.VirtualMachineClusterPreference) { p.Spec = virtio }).sequences(namespace),
	}
}

func replicas(n int32) v1.VirtualMachineInstanceReplicaSetSpec {
	labels := map[string]string{"set": "of-sequences"}
	return v1.VirtualMachineInstanceReplicaSetSpec{
		Replicas: &n,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: waiting("member")},
	}
}

// TestWhatIsSpecialInAKind tests the features of single kinds: scales, statuses, the only KubeVirt object, refusals by
// path.
func TestWhatIsSpecialInAKind(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	vm := createVM(t, namespace, "special", v1.RunStrategyHalted)
	vms, sets := virt.VirtualMachine(namespace), virt.ReplicaSet(namespace)
	set := &v1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "scaled"}, Spec: replicas(1)}
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the set: %v", err)
	}
	runAll(t, []sequence{
		{"a status patch changes no spec", func(ctx context.Context) error {
			patched, err := vms.PatchStatus(ctx, vm.Name, types.MergePatchType,
				[]byte(`{"spec":{"runStrategy":"Always"},"status":{"memoryDumpRequest":null}}`), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("patching the status: %w", err)
			}
			if strategy, _ := patched.RunStrategy(); strategy != v1.RunStrategyHalted {
				return fmt.Errorf("the run strategy became %s", strategy)
			}
			return nil
		}},
		{"an update of the spec changes no status", func(ctx context.Context) error {
			return updateOfTheSpec(ctx, vms, vm.Name)
		}},
		{"a set has a scale, and follows it", func(ctx context.Context) error {
			return scaleOfASet(ctx, sets, set.Name)
		}},
		{"a VM's mistakes are refused with their paths", func(ctx context.Context) error {
			wrong := vm.DeepCopy()
			wrong.ObjectMeta = metav1.ObjectMeta{Name: "wrong"}
			wrong.Spec.Template.Spec.Domain.Devices.Disks[0].Name = "nowhere"
			_, err := vms.Create(ctx, wrong, metav1.CreateOptions{})
			return refused(err, errors.IsInvalid, "spec.template.spec.domain.devices.disks[0].name")
		}},
		{"a change for the worse is refused with its path", func(ctx context.Context) error {
			_, err := vms.Patch(ctx, vm.Name, types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/spec/template/spec/domain/devices/disks/0/name","value":"nowhere"}]`), metav1.PatchOptions{})
			return refused(err, errors.IsInvalid, "spec.template.spec.domain.devices.disks[0].name")
		}},
		{"a name is made up for who asks for it", func(ctx context.Context) error {
			another := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-up-"}, Spec: *vm.Spec.DeepCopy()}
			made, err := vms.Create(ctx, another, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && made.Name <= another.GenerateName {
				err = fmt.Errorf("the name is %q", made.Name)
			}
			return err
		}},
		{"a long list comes in pages", func(ctx context.Context) error {
			return listInPages(ctx, namespace, vm)
		}},
		{"a migration of a machine without a guest is refused", func(ctx context.Context) error {
			m := &v1.VirtualMachineInstanceMigration{
				ObjectMeta: metav1.ObjectMeta{Name: "of-nobody"}, Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "nobody"},
			}
			_, err := virt.VirtualMachineInstanceMigration(namespace).Create(ctx, m, metav1.CreateOptions{})
			return refused(err, errors.IsInvalid, "nobody")
		}},
		{"there are no migrations, and a list says so", func(ctx context.Context) error {
			list, err := virt.VirtualMachineInstanceMigration(namespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("there are %d", len(list.Items))
			}
			return err
		}},
		{"the KubeVirt object is there and available", kubeVirtIsAvailable},
		{"a second KubeVirt object is refused", func(ctx context.Context) error {
			second := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
			_, err := virt.KubeVirt("kubevirt").Create(ctx, second, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return refused(err, errors.IsInvalid, "kubevirt/kubevirt")
		}},
		{"a DataVolume of two sources is refused with its path", func(ctx context.Context) error {
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "undecided"}}
			dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}, Blank: &cdiv1.DataVolumeBlankImage{}}
			dv.Spec.Storage = &cdiv1.StorageSpec{}
			_, err := virt.CdiClient().CdiV1beta1().DataVolumes(namespace).Create(ctx, dv, metav1.CreateOptions{})
			return refused(err, errors.IsInvalid, "spec.source")
		}},
	})
}

// createPlain makes a halted VM with another's spec. The following list shows if it was not made.
func createPlain(ctx context.Context, namespace, name string, like *v1.VirtualMachine) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *like.Spec.DeepCopy()}
	vm.Spec.Template.Spec.Domain.Firmware = nil
	_, _ = virt.VirtualMachine(namespace).Create(ctx, vm, metav1.CreateOptions{})
}

func updateOfTheSpec(ctx context.Context, vms kubecli.VirtualMachineInterface, name string) error {
	// The controller's writes meanwhile are expected.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		read, err := vms.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		read.Status.Created = true
		updated, err := vms.Update(ctx, read, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("updating: %w", err)
		}
		if updated.Status.Created {
			return fmt.Errorf("the status says that there is a VMI")
		}
		return nil
	})
}

func scaleOfASet(ctx context.Context, sets kubecli.ReplicaSetInterface, name string) error {
	// The controller's writes meanwhile are expected.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := sets.GetScale(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if scale.Spec.Replicas != 1 {
			return fmt.Errorf("the scale is %d, want 1", scale.Spec.Replicas)
		}
		scale.Spec.Replicas = 0
		_, err = sets.UpdateScale(ctx, name, scale)
		return err
	})
	if err != nil {
		return fmt.Errorf("scaling: %w", err)
	}
	read, err := sets.Get(ctx, name, metav1.GetOptions{})
	if err == nil && *read.Spec.Replicas != 0 {
		err = fmt.Errorf("the set has %d replicas, want 0", *read.Spec.Replicas)
	}
	return err
}

func listInPages(ctx context.Context, namespace string, vm *v1.VirtualMachine) error {
	vms := virt.VirtualMachine(namespace)
	createPlain(ctx, namespace, "page-1", vm)
	createPlain(ctx, namespace, "page-2", vm)
	first, err := vms.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("listing the first page: %w", err)
	}
	if len(first.Items) != 1 || first.Continue == "" {
		return fmt.Errorf("the first page has %d VMs and continues %q", len(first.Items), first.Continue)
	}
	second, err := vms.List(ctx, metav1.ListOptions{Limit: 1, Continue: first.Continue})
	if err != nil {
		return fmt.Errorf("listing the second page: %w", err)
	}
	if len(second.Items) != 1 || second.Items[0].Name == first.Items[0].Name {
		return fmt.Errorf("the second page has %d VMs, of which the first is on the first page, too", len(second.Items))
	}
	return nil
}

func kubeVirtIsAvailable(ctx context.Context) error {
	list, err := virt.KubeVirt(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("there are %d KubeVirt objects, want one", len(list.Items))
	}
	// It is not while a busy node is not ready.
	kv := &list.Items[0]
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		now, err := virt.KubeVirt(kv.Namespace).Get(ctx, kv.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("reading it: %w", err)
		}
		kv = now
		return slices.ContainsFunc(kv.Status.Conditions, func(c v1.KubeVirtCondition) bool {
			return c.Type == v1.KubeVirtConditionAvailable && c.Status == corev1.ConditionTrue
		}), nil
	})
	if err != nil {
		return fmt.Errorf("it is in phase %s with %+v: %w", kv.Status.Phase, kv.Status.Conditions, err)
	}
	return nil
}
