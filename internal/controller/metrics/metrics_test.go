package metrics

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable/tabletest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
)

// shelf is a cache with these objects.
type shelf struct {
	client.Reader
	vms        []v1.VirtualMachine
	vmis       []v1.VirtualMachineInstance
	pods       []corev1.Pod
	migrations []v1.VirtualMachineInstanceMigrationPhase
	named      []v1.VirtualMachineInstanceMigration
	claims     []corev1.PersistentVolumeClaim
	snapshots  []snapshotv1.VirtualMachineSnapshot
	nodes      []corev1.Node
	workloads  []client.Object
}

func collector(elected <-chan struct{}, cache shelf) *Collector {
	return &Collector{
		Elected: elected, Image: "new", Namespace: "home", Cache: cache, Ready: func() bool { return true },
		Settings: func(context.Context) (clusterconfig.Settings, error) { return clusterconfig.FromKubeVirt(nil), nil },
	}
}

func (s shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1.VirtualMachineList:
		l.Items = s.vms
	case *v1.VirtualMachineInstanceList:
		l.Items = s.vmis
	case *corev1.PodList:
		l.Items = s.pods
	case *corev1.PersistentVolumeClaimList:
		l.Items = s.claims
	case *corev1.NodeList:
		l.Items = s.nodes
	case *snapshotv1.VirtualMachineSnapshotList:
		l.Items = s.snapshots
	case *v1.VirtualMachineInstanceMigrationList:
		l.Items = s.named
		for _, phase := range s.migrations {
			l.Items = append(l.Items, v1.VirtualMachineInstanceMigration{Status: v1.VirtualMachineInstanceMigrationStatus{Phase: phase}})
		}
	}
	return nil
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	for i := range s.vms {
		if vm, is := object.(*v1.VirtualMachine); is && client.ObjectKeyFromObject(&s.vms[i]) == key {
			*vm = s.vms[i]
			return nil
		}
	}
	for _, workload := range s.workloads {
		if client.ObjectKeyFromObject(workload) != key {
			continue
		}
		switch w := workload.(type) {
		case *appsv1.Deployment:
			if d, is := object.(*appsv1.Deployment); is {
				*d = *w
				return nil
			}
		case *appsv1.DaemonSet:
			if d, is := object.(*appsv1.DaemonSet); is {
				*d = *w
				return nil
			}
		}
	}
	for i := range s.claims {
		if claim, is := object.(*corev1.PersistentVolumeClaim); is && client.ObjectKeyFromObject(&s.claims[i]) == key {
			*claim = s.claims[i]
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestTheLeaderCounts(t *testing.T) {
	vmi := func(name, node string, phase v1.VirtualMachineInstancePhase) v1.VirtualMachineInstance {
		return v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Status:     v1.VirtualMachineInstanceStatus{NodeName: node, Phase: phase},
		}
	}
	moves := vmi("d", "node2", v1.Running)
	moves.Spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
	moves.Status.LauncherContainerImageVersion = "new"
	held := *moves.DeepCopy()
	held.Name, held.Status.LauncherContainerImageVersion = "e", "old"
	held.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse}}
	elected := make(chan struct{})
	c := collector(elected, shelf{
		vms: []v1.VirtualMachine{{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"},
			Spec:       v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyAlways)},
			Status:     v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusRunning},
		}},
		vmis: []v1.VirtualMachineInstance{vmi("a", "node1", v1.Running), vmi("b", "node1", v1.Running), vmi("c", "", v1.VmPhaseUnset), moves, held},
		migrations: []v1.VirtualMachineInstanceMigrationPhase{"", v1.MigrationPending, v1.MigrationScheduling,
			v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning, v1.MigrationSucceeded, v1.MigrationFailed},
	})
	waiting := `
kubevirt_virt_controller_leading_status 0
`
	names := []string{"kubevirt_virt_controller_leading_status", "kubevirt_vmi_phase_count", "kubevirt_number_of_vms", "kubevirt_vm_info",
		"kubevirt_vmi_migrations_in_pending_phase", "kubevirt_vmi_migrations_in_running_phase", "kubevirt_vmi_migrations_in_scheduling_phase", "kubevirt_vmi_migrations_in_unset_phase",
		"kubevirt_vmi_non_evictable", "kubevirt_vmi_number_of_outdated"}
	if err := testutil.CollectAndCompare(c, strings.NewReader(tabletest.Page(waiting)), names...); err != nil {
		t.Errorf("before the election: %v", err)
	}
	close(elected)
	leads := `
kubevirt_number_of_vms{namespace="ns"} 1
kubevirt_virt_controller_leading_status 1
kubevirt_vm_info{flavor="",instance_type="",machine_type="",name="a",namespace="ns",os="",preference="",run_strategy="Always",status="running",status_group="running",workload=""} 1
kubevirt_vmi_migrations_in_pending_phase 1
kubevirt_vmi_migrations_in_running_phase 3
kubevirt_vmi_migrations_in_scheduling_phase 1
kubevirt_vmi_migrations_in_unset_phase 1
kubevirt_vmi_non_evictable{name="d",namespace="ns",node="node2"} 0
kubevirt_vmi_non_evictable{name="e",namespace="ns",node="node2"} 1
kubevirt_vmi_number_of_outdated 1
kubevirt_vmi_phase_count{flavor="",guest_os_arch="",guest_os_kernel_release="",guest_os_machine="",guest_os_name="",guest_os_version_id="",instance_type="",node="",os="",phase="pending",preference="",workload=""} 1
kubevirt_vmi_phase_count{flavor="",guest_os_arch="",guest_os_kernel_release="",guest_os_machine="",guest_os_name="",guest_os_version_id="",instance_type="",node="node1",os="",phase="running",preference="",workload=""} 2
kubevirt_vmi_phase_count{flavor="",guest_os_arch="",guest_os_kernel_release="",guest_os_machine="",guest_os_name="",guest_os_version_id="",instance_type="",node="node2",os="",phase="running",preference="",workload=""} 2
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(tabletest.Page(leads)), names...); err != nil {
		t.Errorf("as the leader: %v", err)
	}
}

// empty is a cache that is never filled.
type empty struct{ client.Reader }

func (empty) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAScrapeOfAnEmptyCacheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leader(shelf{})
		c.Cache = empty{}
		began := time.Now()
		if err := testutil.CollectAndCompare(c, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			t.Errorf("the scrape answers %v", err)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("the scrape takes %s", took)
		}
	})
}

// TestWhatIsKnownOfAMachineIsInLabels compares them with KubeVirt's, for any values from tenants and guests.
func TestWhatIsKnownOfAMachineIsInLabels(t *testing.T) {
	elected := make(chan struct{})
	close(elected)
	said := map[string]string{commontypes.OSAnnotation: "fedora", "vm.kubevirt.io/workload": "server",
		commontypes.FlavorAnnotation: strings.Repeat("ü", maxLabel), v1.InstancetypeAnnotation: "mine"}
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Spec: v1.VirtualMachineSpec{
		RunStrategy:  new(v1.RunStrategyManual),
		Template:     &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: said}},
		Instancetype: &v1.InstancetypeMatcher{Name: "u1.small"},
		Preference:   &v1.PreferenceMatcher{Name: "mine", Kind: "VirtualMachinePreference"},
	}}
	vm.Spec.Template.Spec.Domain.Machine = &v1.Machine{Type: "q35"}
	vm.Status.PrintableStatus = v1.VirtualMachineStatusPvcNotFound
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "vmi", Annotations: said}}
	vmi.Status = v1.VirtualMachineInstanceStatus{
		NodeName: "node1", Phase: v1.Running, Machine: &v1.Machine{Type: "pc-q35-9.2"}, LauncherContainerImageVersion: "old",
		GuestOSInfo: v1.VirtualMachineInstanceGuestOSInfo{KernelRelease: "6.1", Machine: "x86_64", Name: "Fedora Linux", VersionID: "43"},
	}
	pod := func(name, vmi, node string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.CreatedByLabel: vmi}},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	c := collector(elected, shelf{vms: []v1.VirtualMachine{vm}, vmis: []v1.VirtualMachineInstance{vmi},
		pods: []corev1.Pod{pod("target", "vmi", "node2", corev1.PodRunning), pod("ended", "vmi", "node1", corev1.PodFailed),
			pod("other", "else", "node1", corev1.PodRunning), pod("source", "vmi", "node1", corev1.PodRunning)}})
	flavor := strings.Repeat("ü", maxLabel/2)
	want := `
kubevirt_vm_info{flavor="` + flavor + `",instance_type="u1.small",machine_type="q35",name="a",namespace="ns",os="fedora",preference="<other>",run_strategy="Manual",status="errorpvcnotfound",status_group="error",workload="server"} 1
kubevirt_vmi_info{evictable="true",flavor="` + flavor + `",guest_os_arch="x86_64",guest_os_kernel_release="6.1",guest_os_machine="pc-q35-9.2",guest_os_name="Fedora Linux",guest_os_version_id="43",instance_type="<other>",name="a",namespace="ns",node="node1",os="fedora",outdated="true",phase="running",preference="",vmi_pod="source",workload="server"} 1
kubevirt_vmi_phase_count{flavor="` + flavor + `",guest_os_arch="x86_64",guest_os_kernel_release="6.1",guest_os_machine="pc-q35-9.2",guest_os_name="Fedora Linux",guest_os_version_id="43",instance_type="<other>",node="node1",os="fedora",phase="running",preference="",workload="server"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(tabletest.Page(want)), "kubevirt_vm_info", "kubevirt_vmi_info", "kubevirt_vmi_phase_count"); err != nil {
		t.Error(err)
	}
}

// TestAGuestThatTakesItsDisksAlongCanBeEvicted if its VM allows that.
func TestAGuestThatTakesItsDisksAlongCanBeEvicted(t *testing.T) {
	claim := &v1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "data"
	spec := v1.VirtualMachineInstanceSpec{EvictionStrategy: new(v1.EvictionStrategyLiveMigrate),
		Volumes: []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}}}}
	spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	cache := shelf{}
	for _, name := range []string{"allowed", "not-allowed", "without-vm"} {
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		vm.Spec = v1.VirtualMachineSpec{UpdateVolumesStrategy: new(v1.UpdateVolumesStrategyMigration), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}}
		if name == "allowed" {
			vm.Annotations = map[string]string{volumemigration.DrainAnnotation: volumemigration.DrainMigrate}
		}
		vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)}}, Spec: spec}
		vmi.Status = v1.VirtualMachineInstanceStatus{NodeName: "n", Phase: v1.Running,
			VolumeStatus: []v1.VolumeStatus{{Name: "disk", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}},
			Conditions: []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable,
				Status: corev1.ConditionFalse, Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable}}}
		cache.vmis = append(cache.vmis, vmi)
		if name != "without-vm" {
			cache.vms = append(cache.vms, vm)
		}
	}
	elected := make(chan struct{})
	close(elected)
	want := `
kubevirt_vmi_non_evictable{name="allowed",namespace="ns",node="n"} 0
kubevirt_vmi_non_evictable{name="not-allowed",namespace="ns",node="n"} 1
kubevirt_vmi_non_evictable{name="without-vm",namespace="ns",node="n"} 1
`
	if err := testutil.CollectAndCompare(collector(elected, cache), strings.NewReader(tabletest.Page(want)), "kubevirt_vmi_non_evictable"); err != nil {
		t.Error(err)
	}
}
