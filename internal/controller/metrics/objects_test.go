package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/metrictable/tabletest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// leader returns the collector of a virt-controller that leads.
func leader(cache shelf) *Collector {
	elected := make(chan struct{})
	close(elected)
	return collector(elected, cache)
}

func expect(t *testing.T, c *Collector, lines string, names ...string) {
	t.Helper()
	if err := testutil.CollectAndCompare(c, strings.NewReader(tabletest.Page(lines)), names...); err != nil {
		t.Error(err)
	}
}

func at(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }

func TestTheTableHasVirtControllersMetrics(t *testing.T) {
	tabletest.Compare(t, metrictable.Controller, &Collector{}, NewTransitions(nil))
}

func TestTheProcessAndItsSettings(t *testing.T) {
	c := leader(shelf{})
	ready := false
	c.Ready = func() bool { return ready }
	names := []string{"kubevirt_configuration_emulation_enabled", "kubevirt_virt_controller_ready_status"}
	expect(t, c, "kubevirt_configuration_emulation_enabled 0\nkubevirt_virt_controller_ready_status 0\n", names...)
	ready = true
	c.Settings = func(context.Context) (clusterconfig.Settings, error) {
		return clusterconfig.Settings{UseEmulation: true}, nil
	}
	expect(t, c, "kubevirt_configuration_emulation_enabled 1\nkubevirt_virt_controller_ready_status 1\n", names...)
	c.Settings = func(context.Context) (clusterconfig.Settings, error) {
		return clusterconfig.Settings{}, errors.New("broken")
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("settings that can't be read: %v", err)
	}
}

func TestWhenAVMLastChangedItsStatus(t *testing.T) {
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", CreationTimestamp: at(50)}}
	vm.Status.Conditions = []v1.VirtualMachineCondition{
		{Type: v1.VirtualMachineReady, LastTransitionTime: at(100)}, {Type: v1.VirtualMachinePaused, LastTransitionTime: at(200)},
		{Type: v1.VirtualMachineConditionType("RestartRequired"), LastTransitionTime: at(300)},
	}
	other := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns"}}
	vm.Status.PrintableStatus, other.Status.PrintableStatus = v1.VirtualMachineStatusPaused, v1.VirtualMachineStatusRunning
	expect(t, leader(shelf{vms: []v1.VirtualMachine{vm, other}}), `
kubevirt_vm_create_date_timestamp_seconds{name="a",namespace="ns"} 50
kubevirt_vm_error_status_last_transition_timestamp_seconds{name="a",namespace="ns"} 0
kubevirt_vm_error_status_last_transition_timestamp_seconds{name="b",namespace="ns"} 0
kubevirt_vm_migrating_status_last_transition_timestamp_seconds{name="a",namespace="ns"} 0
kubevirt_vm_migrating_status_last_transition_timestamp_seconds{name="b",namespace="ns"} 0
kubevirt_vm_non_running_status_last_transition_timestamp_seconds{name="a",namespace="ns"} 200
kubevirt_vm_non_running_status_last_transition_timestamp_seconds{name="b",namespace="ns"} 0
kubevirt_vm_running_status_last_transition_timestamp_seconds{name="a",namespace="ns"} 0
kubevirt_vm_starting_status_last_transition_timestamp_seconds{name="a",namespace="ns"} 0
kubevirt_vm_starting_status_last_transition_timestamp_seconds{name="b",namespace="ns"} 0
`, "kubevirt_vm_create_date_timestamp_seconds", "kubevirt_vm_error_status_last_transition_timestamp_seconds",
		"kubevirt_vm_migrating_status_last_transition_timestamp_seconds", "kubevirt_vm_non_running_status_last_transition_timestamp_seconds",
		"kubevirt_vm_running_status_last_transition_timestamp_seconds", "kubevirt_vm_starting_status_last_transition_timestamp_seconds")
}

func template(domain v1.DomainSpec) *v1.VirtualMachineInstanceTemplateSpec {
	return &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Domain: domain}}
}

func TestWhatVMsAskFor(t *testing.T) {
	vm := func(name string, domain v1.DomainSpec) v1.VirtualMachine {
		return v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: v1.VirtualMachineSpec{Template: template(domain)}}
	}
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	full := v1.DomainSpec{
		CPU:       &v1.CPU{Cores: 2, Sockets: 3, Threads: 1},
		Memory:    &v1.Memory{Guest: new(resource.MustParse("2Gi")), Hugepages: &v1.Hugepages{PageSize: "2Mi"}},
		Resources: v1.ResourceRequirements{Requests: list("1100m", "1Gi"), Limits: list("4", "3Gi")},
	}
	typed, without := vm("typed", v1.DomainSpec{}), vm("without", v1.DomainSpec{})
	typed.Spec.Instancetype, without.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "u1"}, &v1.InstancetypeMatcher{Name: "u1"}
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "typed", Namespace: "ns"}}
	vmi.Spec.Domain = v1.DomainSpec{CPU: &v1.CPU{Sockets: 2}, Memory: &v1.Memory{Guest: new(resource.MustParse("1Gi"))}}
	expect(t, leader(shelf{
		vms:  []v1.VirtualMachine{vm("full", full), vm("small", v1.DomainSpec{}), typed, without},
		vmis: []v1.VirtualMachineInstance{vmi},
	}), `
kubevirt_vm_resource_limits{name="full",namespace="ns",resource="cpu",unit="cores"} 4
kubevirt_vm_resource_limits{name="full",namespace="ns",resource="memory",unit="bytes"} 3.221225472e+09
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="cpu",source="domain",unit="cores"} 2
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="cpu",source="domain",unit="sockets"} 3
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="cpu",source="domain",unit="threads"} 1
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="cpu",source="guest_effective",unit="cores"} 6
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="cpu",source="requests",unit="cores"} 1.1
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="memory",source="domain",unit="bytes"} 1.073741824e+09
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="memory",source="guest",unit="bytes"} 2.147483648e+09
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="memory",source="guest_effective",unit="bytes"} 2.147483648e+09
kubevirt_vm_resource_requests{name="full",namespace="ns",resource="memory",source="hugepages",unit="bytes"} 2.097152e+06
kubevirt_vm_resource_requests{name="small",namespace="ns",resource="cpu",source="default",unit="cores"} 1
kubevirt_vm_resource_requests{name="small",namespace="ns",resource="cpu",source="default",unit="sockets"} 1
kubevirt_vm_resource_requests{name="small",namespace="ns",resource="cpu",source="default",unit="threads"} 1
kubevirt_vm_resource_requests{name="small",namespace="ns",resource="cpu",source="guest_effective",unit="cores"} 1
kubevirt_vm_resource_requests{name="typed",namespace="ns",resource="cpu",source="domain",unit="sockets"} 2
kubevirt_vm_resource_requests{name="typed",namespace="ns",resource="cpu",source="guest_effective",unit="cores"} 2
kubevirt_vm_resource_requests{name="typed",namespace="ns",resource="memory",source="guest",unit="bytes"} 1.073741824e+09
kubevirt_vm_resource_requests{name="typed",namespace="ns",resource="memory",source="guest_effective",unit="bytes"} 1.073741824e+09
`, "kubevirt_vm_resource_limits", "kubevirt_vm_resource_requests")
}

// A list that a tenant writes may have an entry twice, which must not make the scrape invalid.
func TestDisksAndInterfaces(t *testing.T) {
	spec := template(v1.DomainSpec{}).Spec
	claim := &v1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "data"
	onClaim := v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}}
	spec.Volumes = []v1.Volume{
		onClaim, onClaim,
		{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}},
		{Name: "absent", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "absent"}}},
		{Name: "seed"},
	}
	spec.Networks = []v1.Network{
		{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}},
		{Name: "lan", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "ns/lan"}}},
	}
	pod := v1.Interface{Name: "default", Model: "virtio", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}
	spec.Domain.Devices.Interfaces = []v1.Interface{
		pod, pod, {Name: "lan", Binding: &v1.PluginBinding{Name: "plug"}}, {Name: "loose"},
	}
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Spec: spec}
	vmi.Status.NodeName = "node1"
	long := strings.Repeat("x", 2*maxLabel)
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{
		{Name: "default", InterfaceName: long, IP: "10.0.0.2"}, {Name: "lan", InterfaceName: "eth1", IP: "fd00::1%eth1"},
		{Name: "lan", InterfaceName: "eth1", IP: "none"}, {InterfaceName: "docker0", IP: "172.17.0.1"},
	}
	sized := func(name, size string, mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
		c.Spec.VolumeMode = mode
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return c
	}
	expect(t, leader(shelf{
		vms: []v1.VirtualMachine{vm}, vmis: []v1.VirtualMachineInstance{vmi},
		claims: []corev1.PersistentVolumeClaim{sized("data", "2Gi", new(corev1.PersistentVolumeBlock)), sized("root", "1Gi", nil)},
	}), `
kubevirt_vm_disk_allocated_size_bytes{device="disk",name="a",namespace="ns",persistentvolumeclaim="data",volume_mode="Block"} 2.147483648e+09
kubevirt_vm_disk_allocated_size_bytes{device="root",name="a",namespace="ns",persistentvolumeclaim="root",volume_mode="Filesystem"} 1.073741824e+09
kubevirt_vm_vnic_info{binding_name="masquerade",binding_type="core",model="virtio",name="a",namespace="ns",network="pod networking",vnic_name="default"} 1
kubevirt_vm_vnic_info{binding_name="plug",binding_type="plugin",model="<none>",name="a",namespace="ns",network="ns/lan",vnic_name="lan"} 1
kubevirt_vmi_status_addresses{address="",interface_name="eth1",name="a",namespace="ns",node="node1",type="SystemInterface",vnic_name="lan"} 1
kubevirt_vmi_status_addresses{address="10.0.0.2",interface_name="`+long[:maxLabel]+`",name="a",namespace="ns",node="node1",type="ExternalInterface",vnic_name="default"} 1
kubevirt_vmi_status_addresses{address="fd00::1",interface_name="eth1",name="a",namespace="ns",node="node1",type="ExternalInterface",vnic_name="lan"} 1
kubevirt_vmi_vnic_info{binding_name="masquerade",binding_type="core",model="virtio",name="a",namespace="ns",network="pod networking",vnic_name="default"} 1
kubevirt_vmi_vnic_info{binding_name="plug",binding_type="plugin",model="<none>",name="a",namespace="ns",network="ns/lan",vnic_name="lan"} 1
`, "kubevirt_vm_disk_allocated_size_bytes", "kubevirt_vm_vnic_info", "kubevirt_vmi_vnic_info", "kubevirt_vmi_status_addresses")
}

func TestMigrationsAndSnapshots(t *testing.T) {
	migration := func(name string, phase v1.VirtualMachineInstanceMigrationPhase) v1.VirtualMachineInstanceMigration {
		return v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "uid-" + "1"}, Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "a"},
			Status: v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	vmi := func(name string, state *v1.VirtualMachineInstanceMigrationState) v1.VirtualMachineInstance {
		return v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Status: v1.VirtualMachineInstanceStatus{NodeName: "node2", MigrationState: state}}
	}
	good, bad := migration("good", v1.MigrationSucceeded), migration("bad", v1.MigrationFailed)
	bad.UID = "uid-2"
	snapshot := func(name string, phase snapshotv1.VirtualMachineSnapshotPhase) snapshotv1.VirtualMachineSnapshot {
		s := snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Status: &snapshotv1.VirtualMachineSnapshotStatus{Phase: phase, CreationTime: new(at(900))}}
		s.Spec.Source.Name = "a"
		return s
	}
	begun, ended := at(100), at(160)
	expect(t, leader(shelf{
		named: []v1.VirtualMachineInstanceMigration{good, bad},
		vmis: []v1.VirtualMachineInstance{
			vmi("a", &v1.VirtualMachineInstanceMigrationState{MigrationUID: "uid-1", StartTimestamp: &begun, EndTimestamp: &ended, Completed: true}),
			vmi("b", &v1.VirtualMachineInstanceMigrationState{MigrationUID: "uid-2", EndTimestamp: &ended, Completed: true, Failed: true}),
			vmi("c", &v1.VirtualMachineInstanceMigrationState{MigrationUID: "gone", StartTimestamp: &begun}),
		},
		snapshots: []snapshotv1.VirtualMachineSnapshot{snapshot("s1", snapshotv1.Succeeded), snapshot("s2", snapshotv1.Failed), {}},
	}), `
kubevirt_vmi_migration_end_time_seconds{migration_name="bad",name="b",namespace="ns",node="node2",status="failed"} 160
kubevirt_vmi_migration_end_time_seconds{migration_name="good",name="a",namespace="ns",node="node2",status="succeeded"} 160
kubevirt_vmi_migration_failed{namespace="ns",vmi="a",vmim="bad"} 1
kubevirt_vmi_migration_start_time_seconds{migration_name="",name="c",namespace="ns",node="node2"} 100
kubevirt_vmi_migration_start_time_seconds{migration_name="good",name="a",namespace="ns",node="node2"} 100
kubevirt_vmi_migration_succeeded{namespace="ns",vmi="a",vmim="good"} 1
kubevirt_vmsnapshot_succeeded_timestamp_seconds{name="a",namespace="ns",snapshot_name="s1"} 900
`, "kubevirt_vmi_migration_end_time_seconds", "kubevirt_vmi_migration_start_time_seconds", "kubevirt_vmi_migration_failed",
		"kubevirt_vmi_migration_succeeded", "kubevirt_vmsnapshot_succeeded_timestamp_seconds")
}

func TestRestoredDisks(t *testing.T) {
	claim := func(name, vm, namespace, size string) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{
			restore.SourceNameLabel: vm, restore.SourceNamespaceLabel: namespace,
		}}}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return c
	}
	expect(t, leader(shelf{claims: []corev1.PersistentVolumeClaim{
		claim("1", "a", "ns", "1Gi"), claim("2", "a", "ns", "2Gi"), claim("3", "b", "ns", "1Gi"), claim("4", "a", "other", "1Gi"), claim("5", "", "ns", "1Gi"),
		{ObjectMeta: metav1.ObjectMeta{Name: "6", Namespace: "ns"}},
	}}), `
kubevirt_vmsnapshot_disks_restored_from_source{vm_name="a",vm_namespace="ns"} 2
kubevirt_vmsnapshot_disks_restored_from_source{vm_name="b",vm_namespace="ns"} 1
kubevirt_vmsnapshot_disks_restored_from_source_bytes{vm_name="a",vm_namespace="ns"} 3.221225472e+09
kubevirt_vmsnapshot_disks_restored_from_source_bytes{vm_name="b",vm_namespace="ns"} 1.073741824e+09
`, "kubevirt_vmsnapshot_disks_restored_from_source", "kubevirt_vmsnapshot_disks_restored_from_source_bytes")
}

func TestThePodsMemoryBesidesTheGuests(t *testing.T) {
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
	vmi.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
	more := *vmi.DeepCopy()
	more.Name = "b"
	more.Spec.Domain.Memory = &v1.Memory{ReservedOverhead: &v1.ReservedOverhead{AddedOverhead: new(resource.MustParse("64Mi"))}}
	values := map[string]float64{}
	for labels, value := range gathered(t, leader(shelf{vmis: []v1.VirtualMachineInstance{vmi, more}}), "kubevirt_vmi_launcher_memory_overhead_bytes") {
		values[labels] = value.sum
	}
	if a, b := values["a,ns"], values["b,ns"]; len(values) != 2 || a <= 0 || b-a != 64<<20 {
		t.Errorf("the overheads are %v", values)
	}
}

type sample struct {
	count uint64
	sum   float64
}

// gathered returns the values of a gauge or histogram by its labels, in the order of their names.
func gathered(t *testing.T, c prometheus.Collector, name string) map[string]sample {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]sample{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			one := sample{1, m.GetGauge().GetValue()}
			if h := m.GetHistogram(); h != nil {
				one = sample{h.GetSampleCount(), h.GetSampleSum()}
			}
			found[strings.Join(labels, ",")] = one
		}
	}
	return found
}

func TestTransitionsAreCountedByTheLeader(t *testing.T) {
	elected := make(chan struct{})
	c := NewTransitions(elected)
	vmi := func(stamps ...v1.VirtualMachineInstancePhaseTransitionTimestamp) *v1.VirtualMachineInstance {
		v := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "1", CreationTimestamp: at(1000)}}
		v.Status.PhaseTransitionTimestamps = stamps
		if len(stamps) > 0 {
			v.Status.Phase = stamps[len(stamps)-1].Phase
		}
		return v
	}
	stamp := func(phase v1.VirtualMachineInstancePhase, seconds int64) v1.VirtualMachineInstancePhaseTransitionTimestamp {
		return v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at(seconds)}
	}
	pending, scheduled, running, failed := stamp(v1.Pending, 1000), stamp(v1.Scheduled, 1004), stamp(v1.Running, 1010), stamp(v1.Failed, 1100)
	deleted := vmi(pending, scheduled, running, failed)
	deleted.DeletionTimestamp = new(at(1080))
	another := vmi(pending, scheduled)
	another.UID = "2"
	story := func() {
		c.vmi(vmi(), vmi(pending, scheduled)) // one write enters two phases
		c.vmi(vmi(pending, scheduled), vmi(pending, scheduled))
		c.vmi(vmi(pending, scheduled), vmi(pending, scheduled, running, stamp("Invented", 1011)))
		c.vmi(vmi(pending, scheduled, running), deleted)
		c.vmi(vmi(), another)
	}
	story()
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("who does not lead counts %d series", n)
	}
	close(elected)
	story()
	for name, want := range map[string]map[string]sample{
		"kubevirt_vmi_phase_transition_time_seconds": {
			",Pending": {1, 0}, "Pending,Scheduled": {1, 4}, "Scheduled,Running": {1, 6}, "Running,Failed": {1, 90},
		},
		"kubevirt_vmi_phase_transition_time_from_creation_seconds": {"Pending": {1, 0}, "Scheduled": {1, 4}, "Running": {1, 10}, "Failed": {1, 100}},
		"kubevirt_vmi_phase_transition_time_from_deletion_seconds": {"Failed": {1, 20}},
	} {
		if diff := cmp.Diff(want, gathered(t, c, name), cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTransitionsOfMigrations(t *testing.T) {
	elected := make(chan struct{})
	c := NewTransitions(elected)
	migration := func(stamps ...v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{UID: "1", CreationTimestamp: at(1000)}}
		m.Status.PhaseTransitionTimestamps = stamps
		return m
	}
	entered := func(phase v1.VirtualMachineInstanceMigrationPhase, seconds int64) v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
		return v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at(seconds)}
	}
	// The clock of who wrote was behind.
	waits := entered(v1.MigrationPending, 999)
	c.migration(migration(), migration(waits))
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("who does not lead counts %d series", n)
	}
	close(elected)
	c.migration(migration(), migration(waits))
	c.migration(migration(waits), migration(waits, entered(v1.MigrationRunning, 1030), entered("Invented", 1031)))
	want := map[string]sample{"Pending": {1, 0}, "Running": {1, 30}}
	if diff := cmp.Diff(want, gathered(t, c, "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds"), cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
}
