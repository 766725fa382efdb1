package workloadupdate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// guest is a running VMI in a pod of an image.
func guest(name, image string) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: "a", LauncherContainerImageVersion: image},
	}
}

func fixed(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "cannot migrate VMI: it is fixed",
	})
	return vmi
}

func required(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionTrue,
	})
	return vmi
}

// changes is a VMI whose disks must be copied to other claims, or no longer.
func changes(vmi *v1.VirtualMachineInstance, status corev1.ConditionStatus) *v1.VirtualMachineInstance {
	vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceVolumesChange, Status: status})
	return vmi
}

func evicted(vmi *v1.VirtualMachineInstance, strategy v1.EvictionStrategy) *v1.VirtualMachineInstance {
	vmi.Spec.EvictionStrategy = &strategy
	return vmi
}

func labeled(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance { return Labeled(vmi, true) }

func marked(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Status.EvacuationNodeName = "a"
	return vmi
}

// unready is a guest whose condition Ready is False for a reason.
func unready(vmi *v1.VirtualMachineInstance, reason string) *v1.VirtualMachineInstance {
	vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason,
	})
	return vmi
}

// moving is a guest whose migration has begun.
func moving(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourceNode: "a", TargetNode: "b"}
	return vmi
}

func in(phase v1.VirtualMachineInstancePhase, vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Status.Phase = phase
	return vmi
}

// updateOfA is a migration of the VMI "a" for an update.
func updateOfA(phase v1.VirtualMachineInstanceMigrationPhase) *v1.VirtualMachineInstanceMigration {
	m := migration.Automatic(guest("a", ""), v1.WorkloadUpdateMigrationAnnotation, "", "update-of-a")
	m.UID, m.Status.Phase = "update-of-a", phase
	m.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
		{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-5 * time.Second))},
	}
	return m
}

// summary formats a plan in one line.
func summary(p Plan) string {
	var out []string
	list := func(does string, names []string) {
		if len(names) > 0 {
			out = append(out, does+" "+strings.Join(names, ","))
		}
	}
	names := func(vmis []*v1.VirtualMachineInstance) (names []string) {
		for _, vmi := range vmis {
			names = append(names, vmi.Name)
		}
		return names
	}
	out = append(out, fmt.Sprint(p.Outdated))
	list("labels", names(p.Label))
	list("unlabels", names(p.Unlabel))
	var migrated []string
	for _, m := range p.Migrate {
		migrated = append(migrated, m.Spec.VMIName)
	}
	list("migrates", migrated)
	var canceled []string
	for _, m := range p.Cancel {
		canceled = append(canceled, m.Name)
	}
	list("cancels", canceled)
	list("evicts", names(p.Evict))
	if p.After > 0 {
		out = append(out, "waits "+p.After.String())
	}
	return strings.Join(out, "; ")
}

func TestPlan(t *testing.T) {
	const migrate, evict = v1.WorkloadUpdateMethodLiveMigrate, v1.WorkloadUpdateMethodEvict
	type vmis = []*v1.VirtualMachineInstance
	for name, c := range map[string]struct {
		methods []v1.WorkloadUpdateMethod
		vmis    vmis
		edit    func(*Cluster)
		want    string
	}{
		"nothing is outdated":           {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{guest("a", "new")}, want: "0"},
		"no method: it is only counted": {vmis: vmis{guest("a", "old"), labeled(guest("b", "old"))}, want: "2; labels a"},
		"one that was outdated":         {vmis: vmis{labeled(guest("a", "new"))}, want: "0; unlabels a"},
		"one that is being deleted is left alone": {methods: []v1.WorkloadUpdateMethod{migrate}, want: "1",
			vmis: func() vmis { v := guest("a", "old"); v.DeletionTimestamp = &metav1.Time{}; return vmis{v} }()},
		"one that starts is counted and left":    {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{labeled(in(v1.Scheduled, guest("a", "old")))}, want: "1"},
		"one that has ended is not":              {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{in(v1.Failed, guest("a", "old"))}, want: "0"},
		"LiveMigrate":                            {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{labeled(guest("a", "old")), labeled(fixed(guest("b", "old")))}, want: "2; migrates a"},
		"Evict alone":                            {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old")), labeled(fixed(guest("b", "old")))}, want: "2; evicts a,b; waits 1m0s"},
		"both: who can't be migrated is evicted": {methods: []v1.WorkloadUpdateMethod{evict, migrate}, vmis: vmis{labeled(guest("a", "old")), labeled(fixed(guest("b", "old")))}, want: "2; migrates a; evicts b; waits 1m0s"},
		"whose eviction would be refused takes no place": {methods: []v1.WorkloadUpdateMethod{evict}, want: "3; evicts c; waits 1m0s",
			vmis: vmis{labeled(evicted(fixed(guest("a", "old")), v1.EvictionStrategyLiveMigrate)), labeled(evicted(fixed(guest("b", "old")), v1.EvictionStrategyExternal)),
				labeled(evicted(fixed(guest("c", "old")), v1.EvictionStrategyLiveMigrateIfPossible))}},
		"a change was taken back": {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{guest("a", "new")}, want: "0; cancels update-of-a",
			edit: func(c *Cluster) {
				c.Migrations = []*v1.VirtualMachineInstanceMigration{updateOfA(v1.MigrationScheduling)}
			}},
		"a change was taken back while the guest moves": {methods: []v1.WorkloadUpdateMethod{migrate}, want: "0",
			vmis: func() vmis {
				v := moving(guest("a", "new"))
				v.Status.MigrationState.MigrationUID = "update-of-a"
				return vmis{v}
			}(),
			edit: func(c *Cluster) {
				c.Migrations = []*v1.VirtualMachineInstanceMigration{updateOfA(v1.MigrationScheduled)}
			}},
		"a change was taken back after its migration": {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{guest("a", "new")}, want: "0",
			edit: func(c *Cluster) {
				c.Migrations = []*v1.VirtualMachineInstanceMigration{updateOfA(v1.MigrationSucceeded)}
			}},
		"the migration is somebody else's": {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{guest("a", "new")}, want: "0",
			edit: func(c *Cluster) {
				m := updateOfA(v1.MigrationPending)
				m.Annotations = nil
				c.Migrations = []*v1.VirtualMachineInstanceMigration{m}
			}},
		"MigrationRequired":                                          {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{required(guest("a", "new"))}, want: "0; migrates a"},
		"MigrationRequired evicts nobody":                            {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{required(guest("a", "new"))}, want: "0"},
		"one that is evacuated is left":                              {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{labeled(marked(guest("a", "old")))}, want: "1"},
		"one that is on its way already, whoever has asked for that": {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(moving(guest("a", "old")))}, want: "1"},
		"one whose pod ends already takes no place": {methods: []v1.WorkloadUpdateMethod{evict}, want: "2; evicts b; waits 1m0s",
			vmis: vmis{labeled(unready(guest("a", "old"), v1.PodTerminatingReason)), labeled(guest("b", "old"))}, edit: func(c *Cluster) { c.Strategy.BatchEvictionSize = new(1) }},
		"one whose node does not answer":      {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{labeled(unready(guest("a", "old"), vmistatus.ReasonNodeLost))}, want: "1"},
		"one that is not ready, and runs":     {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{labeled(unready(guest("a", "old"), v1.GuestNotRunningReason))}, want: "1; migrates a"},
		"VolumesChange needs no method":       {vmis: vmis{changes(guest("a", "new"), "True")}, want: "0; migrates a"},
		"VolumesChange that was taken back":   {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{changes(guest("a", "new"), "False")}, want: "0"},
		"VolumesChange of one that can't":     {methods: []v1.WorkloadUpdateMethod{migrate, evict}, vmis: vmis{changes(fixed(guest("a", "new")), "True")}, want: "0"},
		"one that is migrated already":        {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{labeled(guest("a", "old"))}, want: "1", edit: func(c *Cluster) { c.Migrations = append(c.Migrations, updateOfA(v1.MigrationPending)) }},
		"one whose migration has just failed": {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{labeled(guest("a", "old"))}, want: "1; waits 15s", edit: func(c *Cluster) { c.Migrations = append(c.Migrations, updateOfA(v1.MigrationFailed)) }},
		"no more than may run":                {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{labeled(guest("a", "old")), labeled(guest("b", "old")), labeled(guest("c", "old"))}, want: "3; migrates a,b"},
		"those under way count":               {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{labeled(guest("a", "old")), labeled(guest("b", "old")), labeled(guest("c", "old"))}, want: "3; migrates b", edit: func(c *Cluster) { c.Migrations = append(c.Migrations, updateOfA(v1.MigrationRunning)) }},
		"a batch of one":                      {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old")), labeled(guest("b", "old"))}, want: "2; evicts a; waits 1m0s", edit: func(c *Cluster) { c.Strategy.BatchEvictionSize = new(1) }},
		"a batch before its time":             {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old"))}, want: "1; waits 20s", edit: func(c *Cluster) { c.LastBatch = noon.Add(-40 * time.Second) }},
		"a batch when it is its time":         {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old"))}, want: "1; evicts a; waits 1m0s", edit: func(c *Cluster) { c.LastBatch = noon.Add(-time.Minute) }},
		"an interval of its own": {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old"))}, want: "1; waits 1m20s", edit: func(c *Cluster) {
			c.LastBatch = noon.Add(-40 * time.Second)
			c.Strategy.BatchEvictionInterval = &metav1.Duration{Duration: 2 * time.Minute}
		}},
		"sizes that make no sense are the least": {methods: []v1.WorkloadUpdateMethod{evict}, vmis: vmis{labeled(guest("a", "old")), labeled(guest("b", "old"))}, want: "2; evicts a; waits 1s", edit: func(c *Cluster) {
			c.Strategy.BatchEvictionSize = new(-3)
			c.Strategy.BatchEvictionInterval = &metav1.Duration{}
		}},
		"a VMI that says nothing of its pod's image": {methods: []v1.WorkloadUpdateMethod{migrate}, vmis: vmis{guest("a", "")}, want: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := Cluster{
				VMIs: c.vmis, Image: "new", Strategy: v1.KubeVirtWorkloadUpdateStrategy{WorkloadUpdateMethods: c.methods},
				Eviction: v1.EvictionStrategyNone, MostMigrations: 2, LastBatch: noon.Add(-time.Hour), Now: noon,
			}
			if c.edit != nil {
				c.edit(&cluster)
			}
			if got := summary(Decide(cluster)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEveryAttemptHasAName(t *testing.T) {
	cluster := Cluster{
		VMIs: []*v1.VirtualMachineInstance{guest("a", "old")}, Image: "new", MostMigrations: 1, Now: noon.Add(time.Hour),
		Strategy: v1.KubeVirtWorkloadUpdateStrategy{WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}},
	}
	first, again := Decide(cluster).Migrate[0], Decide(cluster).Migrate[0]
	if first.Name != again.Name || *first.Spec.Priority != v1.PrioritySystemMaintenance {
		t.Errorf("the first attempt is %s and %s, priority %s", first.Name, again.Name, *first.Spec.Priority)
	}
	cluster.Migrations = append(cluster.Migrations, updateOfA(v1.MigrationFailed))
	if second := Decide(cluster).Migrate[0]; second.Name == first.Name {
		t.Errorf("the second attempt is %s, too", second.Name)
	}
}

// KubeVirt's clients find the migration that copies a VM's disks by this label, and no other may have it.
func TestAMigrationOfVolumesIsLabeled(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"volumes":               {changes(guest("a", "new"), "True"), "a"},
		"volumes and the image": {changes(guest("a", "old"), "True"), "a"},
		"a long name":           {changes(in(v1.Running, &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: long, UID: "u"}}), "True"), "u"},
		"the image":             {guest("a", "old"), ""},
	} {
		plan := Decide(Cluster{
			VMIs: []*v1.VirtualMachineInstance{c.vmi}, Image: "new", MostMigrations: 1, Now: noon,
			Strategy: v1.KubeVirtWorkloadUpdateStrategy{WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}},
		})
		if len(plan.Migrate) != 1 {
			t.Errorf("%s: %d migrations", name, len(plan.Migrate))
		} else if got := plan.Migrate[0].Labels[v1.VolumesUpdateMigration]; got != c.want || plan.Migrate[0].Labels[v1.MigrationSelectorLabel] == "" {
			t.Errorf("%s: the labels are %v", name, plan.Migrate[0].Labels)
		}
	}
}
