package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// The delay of a VMI's next automatic migration doubles with each failure, from firstBackOff to longestBackOff.
const (
	firstBackOff   = 20 * time.Second
	longestBackOff = 5 * time.Minute
)

// Choice is whether a migration may begin, and the reason if not.
type Choice struct {
	May             bool
	Reason, Message string        // empty for a migration that could not begin anyway
	After           time.Duration // set if the migration only waits for that time
}

// Cluster is the input of Choose.
type Cluster struct {
	Migrations []*v1.VirtualMachineInstanceMigration // all, including ended ones
	// VMI returns nil if there is none with the name.
	VMI func(types.NamespacedName) *v1.VirtualMachineInstance
	// Configuration has every field set.
	Configuration v1.MigrationConfiguration
	Now           time.Time
}

// Choose decides by UID which waiting migrations may begin: by priority, then by the fewest running in the namespace, then
// by age. One that waits for its node delays no other node's. A choice holds until a migration begins or ends.
func Choose(c Cluster) map[types.UID]Choice {
	q := newQueue(c)
	for len(q.waiting) > 0 {
		next := 0
		for i, m := range q.waiting {
			first := q.waiting[next]
			if cmp.Or(cmp.Compare(rank(m), rank(first)), cmp.Compare(q.namespaces[m.Namespace], q.namespaces[first.Namespace])) < 0 {
				next = i
			}
		}
		m := q.waiting[next]
		q.waiting = slices.Delete(q.waiting, next, next+1)
		q.choices[m.UID] = q.choiceFor(m)
	}
	return q.choices
}

type queue struct {
	c       Cluster
	waiting []*v1.VirtualMachineInstanceMigration // undecided, oldest first
	choices map[types.UID]Choice
	// The numbers include the chosen ones.
	running     uint32
	nodes       map[string]uint32
	namespaces  map[string]uint32
	vmis        map[types.NamespacedName]bool
	lastFailure map[types.NamespacedName]failures
}

// failures are a VMI's failures since the last success.
type failures struct {
	count int
	last  time.Time
}

func newQueue(c Cluster) *queue {
	q := &queue{
		c: c, choices: map[types.UID]Choice{}, nodes: map[string]uint32{}, namespaces: map[string]uint32{},
		vmis: map[types.NamespacedName]bool{}, lastFailure: failuresOf(c.Migrations),
	}
	for _, m := range c.Migrations {
		switch vmi := c.VMI(vmiOf(m)); {
		case m.IsRunning():
			q.begin(m, vmi)
		case !m.IsFinal() && m.DeletionTimestamp == nil && vmi != nil && Movable(vmi) == nil:
			q.waiting = append(q.waiting, m)
		}
	}
	slices.SortFunc(q.waiting, func(a, b *v1.VirtualMachineInstanceMigration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return q
}

func vmiOf(m *v1.VirtualMachineInstanceMigration) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
}

func (q *queue) begin(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance) {
	q.running++
	q.namespaces[m.Namespace]++
	q.vmis[vmiOf(m)] = true
	if node := sourceNode(m, vmi); node != "" {
		q.nodes[node]++
	}
}

func sourceNode(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance) string {
	switch {
	case vmi == nil:
		return ""
	case vmi.Status.MigrationState != nil && vmi.Status.MigrationState.MigrationUID == m.UID:
		return vmi.Status.MigrationState.SourceNode
	}
	return vmi.Status.NodeName
}

// rank returns a migration's urgency, 0 being highest. Without a priority it counts as a user's.
func rank(m *v1.VirtualMachineInstanceMigration) int {
	if m.Spec.Priority == nil {
		return 1
	}
	switch *m.Spec.Priority {
	case v1.PrioritySystemCritical:
		return 0
	case v1.PrioritySystemMaintenance:
		return 2
	}
	return 1
}

func (q *queue) choiceFor(m *v1.VirtualMachineInstanceMigration) Choice {
	vmi := q.c.VMI(vmiOf(m))
	cluster, node := *q.c.Configuration.ParallelMigrationsPerCluster, *q.c.Configuration.ParallelOutboundMigrationsPerNode
	from := sourceNode(m, vmi)
	f := q.lastFailure[vmiOf(m)]
	var left time.Duration // A user's migration does not wait.
	if automatic(m) {
		left = f.left(q.c.Now)
	}
	switch {
	case q.vmis[vmiOf(m)]:
		return Choice{Reason: ReasonAnotherMigration, Message: "another migration of the VMI goes first"}
	case left > 0:
		return Choice{Reason: ReasonBackOff, After: left, Message: fmt.Sprintf(
			"%d migrations of the VMI have failed since one has succeeded, the last one at %s", f.count, f.last.UTC().Format(time.RFC3339))}
	case q.running >= cluster:
		return Choice{Reason: ReasonClusterLimit, Message: fmt.Sprintf(
			"as many migrations run as the KubeVirt object allows at a time (parallelMigrationsPerCluster: %d)", cluster)}
	case q.nodes[from] >= node:
		return Choice{Reason: ReasonNodeLimit, Message: fmt.Sprintf(
			"as many migrations leave node %s as the KubeVirt object allows at a time (parallelOutboundMigrationsPerNode: %d)", from, node)}
	}
	q.begin(m, vmi)
	return Choice{May: true}
}

// automatic reports whether Drydock asked for the migration.
func automatic(m *v1.VirtualMachineInstanceMigration) bool {
	return MadeFor(m, v1.EvacuationMigrationAnnotation) || MadeFor(m, v1.WorkloadUpdateMigrationAnnotation)
}

// failuresOf counts each VMI's failed automatic migrations since any of its migrations succeeded.
func failuresOf(migrations []*v1.VirtualMachineInstanceMigration) map[types.NamespacedName]failures {
	succeeded := map[types.NamespacedName]time.Time{}
	for _, m := range migrations {
		if at := endOf(m); m.Status.Phase == v1.MigrationSucceeded && at.After(succeeded[vmiOf(m)]) {
			succeeded[vmiOf(m)] = at
		}
	}
	out := map[types.NamespacedName]failures{}
	for _, m := range migrations {
		at := endOf(m)
		if m.Status.Phase != v1.MigrationFailed || !automatic(m) || at.Before(succeeded[vmiOf(m)]) {
			continue
		}
		f := out[vmiOf(m)]
		f.count++
		if at.After(f.last) {
			f.last = at
		}
		out[vmiOf(m)] = f
	}
	return out
}
