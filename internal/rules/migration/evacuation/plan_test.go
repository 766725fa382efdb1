package evacuation

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// drained is a guest on node "a", which is cordoned and has been asked to evict it.
func drained() *Observed {
	vmi := Mark(newScene(always).vmi, true)
	return &Observed{VMI: vmi, Node: node(true), Cluster: none, Now: noon}
}

func node(cordoned bool) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
}

// evacuating adds a migration for the evacuation.
func (o *Observed) evacuating(uid types.UID, phase v1.VirtualMachineInstanceMigrationPhase) *v1.VirtualMachineInstanceMigration {
	m := o.next()
	m.UID, m.Status.Phase = uid, phase
	m.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	o.Migrations = append(o.Migrations, m)
	return m
}

// failed adds one that failed this long ago.
func (o *Observed) failed(uid types.UID, ago time.Duration) {
	m := o.evacuating(uid, v1.MigrationFailed)
	m.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
		{Phase: v1.MigrationFailed, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-ago))},
	}
}

// usersOwn adds a user's migration with arbitrary annotations.
func (o *Observed) usersOwn(phase v1.VirtualMachineInstanceMigrationPhase) {
	m := o.evacuating("users", phase)
	m.Spec.Priority = new(v1.PriorityUserTriggered)
}

func (o *Observed) ifPossible() { *o.VMI.Spec.EvictionStrategy = ifPossible }

func (o *Observed) uncordon() { o.Node, o.NodeAsked = node(false), true }
func (o *Observed) leave()    { o.VMI.Status.NodeName = "b" }

// summary is a plan in one line.
func summary(p Plan) string {
	out := ""
	if p.Needs != NeedNothing {
		out += fmt.Sprintf("asks %d ", p.Needs)
	}
	for _, m := range p.Cancel {
		out += "cancels " + string(m.UID) + " "
	}
	if p.Clear {
		out += "clears "
	}
	if p.Stop {
		out += "stops "
	}
	if p.Create != nil {
		out += "creates "
	}
	if p.After > 0 {
		out += "waits " + p.After.String() + " "
	}
	return out
}

func TestPlan(t *testing.T) {
	askNode, askMigrations := fmt.Sprintf("asks %d ", NeedNode), fmt.Sprintf("asks %d ", NeedMigrations)
	for name, c := range map[string]struct {
		edit func(*Observed)
		want string
	}{
		"a guest is marked":                        {func(*Observed) {}, "creates "},
		"a guest is not marked":                    {func(o *Observed) { o.VMI = Clear(o.VMI) }, ""},
		"the VMI is gone":                          {func(o *Observed) { o.VMI = nil }, ""},
		"the VMI has ended":                        {func(o *Observed) { o.VMI.Status.Phase = v1.Succeeded }, ""},
		"the VMI is being deleted":                 {func(o *Observed) { o.VMI.DeletionTimestamp = &metav1.Time{} }, ""},
		"the guest is marked and does not run yet": {func(o *Observed) { o.VMI.Status.Phase = v1.Scheduled }, ""},
		"the guest can't be migrated any more":     {func(o *Observed) { (&scene{vmi: o.VMI}).immovable() }, ""},
		"LiveMigrateIfPossible":                    {(*Observed).ifPossible, "creates "},
		"LiveMigrateIfPossible, and it can't be migrated, by the cache": {func(o *Observed) { o.ifPossible(); (&scene{vmi: o.VMI}).immovable() }, askMigrations},
		"LiveMigrateIfPossible, and it can't be migrated":               {func(o *Observed) { o.ifPossible(); (&scene{vmi: o.VMI}).immovable(); o.Asked = true }, "stops "},
		"LiveMigrateIfPossible, and it does not run yet":                {func(o *Observed) { o.ifPossible(); o.VMI.Status.Phase = v1.Scheduled; o.Asked = true }, ""},
		"LiveMigrateIfPossible, and its migration fails as it can't be migrated any more": {func(o *Observed) {
			o.ifPossible()
			(&scene{vmi: o.VMI}).immovable()
			o.evacuating("m", v1.MigrationRunning)
			o.Asked = true
		}, ""},
		"LiveMigrateIfPossible, on its way, and it can't be migrated any more": {func(o *Observed) {
			o.ifPossible()
			(&scene{vmi: o.VMI}).immovable()
			(&scene{vmi: o.VMI, pod: &corev1.Pod{}}).migrating()
			o.Asked = true
		}, ""},
		"LiveMigrateIfPossible, can't be migrated, and the node is uncordoned": {func(o *Observed) { o.ifPossible(); (&scene{vmi: o.VMI}).immovable(); o.uncordon() }, "clears "},
		"External: nobody migrates it":                                         {func(o *Observed) { *o.VMI.Spec.EvictionStrategy = external }, ""},
		"External: it has left":                                                {func(o *Observed) { *o.VMI.Spec.EvictionStrategy = external; o.leave() }, "clears "},
		"External: its node is uncordoned":                                     {func(o *Observed) { *o.VMI.Spec.EvictionStrategy = external; o.uncordon() }, "clears "},
		"the cluster's strategy has become None":                               {func(o *Observed) { o.VMI.Spec.EvictionStrategy = nil }, "clears "},
		"its migration waits":                                                  {func(o *Observed) { o.evacuating("m", v1.MigrationPending) }, ""},
		"its migration runs":                                                   {func(o *Observed) { o.evacuating("m", v1.MigrationRunning) }, ""},
		"a user migrates it":                                                   {func(o *Observed) { o.usersOwn(v1.MigrationPending) }, ""},
		"the VMI is in a migration whose object is gone":                       {func(o *Observed) { (&scene{vmi: o.VMI, pod: &corev1.Pod{}}).migrating() }, ""},
		"its migration has just failed":                                        {func(o *Observed) { o.failed("m", 5*time.Second) }, "waits 15s "},
		"its migration has failed some time ago":                               {func(o *Observed) { o.failed("m", 20*time.Second) }, "creates "},
		"its migrations fail again and again":                                  {func(o *Observed) { o.failed("m1", time.Minute); o.failed("m2", 10*time.Second) }, "waits 30s "},
		"it has left the node":                                                 {(*Observed).leave, "clears "},
		"it has left the node while its migration waits":                       {func(o *Observed) { o.evacuating("m", v1.MigrationPending); o.leave() }, askMigrations},
		"the same, and the API server says so":                                 {func(o *Observed) { o.evacuating("m", v1.MigrationPending); o.leave(); o.Asked = true }, "cancels m clears "},
		"the node is schedulable, by the cache":                                {func(o *Observed) { o.uncordon(); o.NodeAsked = false }, askNode},
		"the node is schedulable again":                                        {(*Observed).uncordon, "clears "},
		"uncordoned while a migration waits":                                   {func(o *Observed) { o.evacuating("m", v1.MigrationPending); o.uncordon(); o.Asked = true }, "cancels m clears "},
		"uncordoned while a target pod is awaited":                             {func(o *Observed) { o.evacuating("m", v1.MigrationScheduled); o.uncordon(); o.Asked = true }, "cancels m clears "},
		"uncordoned while a target is prepared":                                {func(o *Observed) { o.evacuating("m", v1.MigrationPreparingTarget); o.uncordon(); o.Asked = true }, "clears "},
		"uncordoned while a migration runs":                                    {func(o *Observed) { o.evacuating("m", v1.MigrationRunning); o.uncordon(); o.Asked = true }, "clears "},
		"uncordoned, and the VMI names the migration": {func(o *Observed) {
			o.evacuating("m", v1.MigrationScheduled)
			(&scene{vmi: o.VMI, pod: &corev1.Pod{}}).migrating()
			o.uncordon()
			o.Asked = true
		}, "clears "},
		"uncordoned while a user's migration waits": {func(o *Observed) { o.usersOwn(v1.MigrationPending); o.uncordon(); o.Asked = true }, "clears "},
		"uncordoned, and its migration is canceled": {func(o *Observed) {
			o.evacuating("m", v1.MigrationPending).DeletionTimestamp = &metav1.Time{}
			o.uncordon()
		}, "clears "},
		"evicted from a node that was never cordoned": {func(o *Observed) { delete(o.VMI.Annotations, CordonAnnotation); o.uncordon() }, "creates "},
		"a cordon of another node":                    {func(o *Observed) { o.VMI.Annotations[CordonAnnotation] = "b"; o.uncordon() }, "creates "},
		"the node is gone":                            {func(o *Observed) { o.Node = nil }, "creates "},
		"not marked, and an earlier migration waits":  {func(o *Observed) { o.evacuating("m", v1.MigrationPending); o.VMI = Clear(o.VMI) }, askMigrations},
		"the same, by the API server":                 {func(o *Observed) { o.evacuating("m", v1.MigrationPending); o.VMI = Clear(o.VMI); o.Asked = true }, "cancels m "},
		"not marked, and a user's migration waits":    {func(o *Observed) { o.usersOwn(v1.MigrationPending); o.VMI = Clear(o.VMI) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := drained()
			c.edit(o)
			if got := summary(Decide(*o)); got != c.want {
				t.Errorf("it %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheSameMigrationIsMadeUntilItHasEnded(t *testing.T) {
	o := drained()
	first := Decide(*o).Create
	if first == nil || first.Annotations[v1.EvacuationMigrationAnnotation] != "a" || *first.Spec.Priority != v1.PrioritySystemMaintenance || first.Spec.VMIName != "vm" {
		t.Fatalf("made is %+v", first)
	}
	if again := Decide(*o).Create; again.Name != first.Name {
		t.Errorf("whoever has not seen %s makes %s", first.Name, again.Name)
	}
	o.failed("m1", time.Hour)
	second := Decide(*o).Create
	if second == nil || second.Name == first.Name {
		t.Errorf("after one has failed the next is %+v", second)
	}
	other := drained()
	other.VMI.UID = "another"
	if got := Decide(*other).Create; got.Name == first.Name {
		t.Error("another VMI of the name has the same migration")
	}
}
