package evacuation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
)

// Question is what a plan depends on and the caches can't answer.
type Question int

// The questions.
const (
	NeedNothing Question = iota
	// NeedNode asks the API server for the node that the VMI is marked for.
	NeedNode
	// NeedMigrations asks it for the VMI and its migrations.
	NeedMigrations
)

// Observed is what is known of a VMI.
type Observed struct {
	// VMI is nil when there is none.
	VMI *v1.VirtualMachineInstance
	// VM is the VMI's, nil when it has none, or is not asked for: it counts only where HeldByDisks of package
	// migration. Asked counts for it, too.
	VM *v1.VirtualMachine
	// Node is the one that the VMI is marked for, nil when it is not marked or the node does
	// not exist. NodeAsked means that it is the API server's word.
	Node      *corev1.Node
	NodeAsked bool
	// Migrations are those of the VMI's name. Asked means that they and the VMI are the API
	// server's word.
	Migrations []*v1.VirtualMachineInstanceMigration
	Asked      bool
	// Cluster is the cluster's strategy.
	Cluster v1.EvictionStrategy
	Now     time.Time
}

// Plan is what is to be done for a VMI, in the order of the fields.
type Plan struct {
	// Needs is what has to be asked before anything is done.
	Needs Question
	// Cancel are migrations that are not wanted any more and have not begun.
	Cancel []*v1.VirtualMachineInstanceMigration
	// Clear takes the mark off.
	Clear bool
	// Stop deletes the pod that the guest is in.
	Stop bool
	// Create is a migration that is to be made, nil for none. Its name follows from what it
	// is for: one that exists already is as good.
	Create *v1.VirtualMachineInstanceMigration
	// After asks for another look, zero for none.
	After time.Duration
}

// Decide plans for a VMI.
func Decide(o Observed) Plan {
	vmi := o.VMI
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		return Plan{}
	}
	uncordoned := ofCordon(vmi) && schedulable(o.Node)
	switch node := vmi.Status.EvacuationNodeName; {
	case node == "" || node != vmi.Status.NodeName:
		return o.end()
	case Strategy(vmi, o.Cluster) == v1.EvictionStrategyNone:
		return o.end()
	case uncordoned && !o.NodeAsked:
		// A cache may show the node as it was before the drain.
		return Plan{Needs: NeedNode}
	case uncordoned:
		return o.end()
	case Strategy(vmi, o.Cluster) == v1.EvictionStrategyExternal:
		return Plan{}
	}
	return o.evacuate()
}

func schedulable(node *corev1.Node) bool { return node != nil && !node.Spec.Unschedulable }

// end leaves nothing of an evacuation that is over, but what has begun.
func (o *Observed) end() Plan {
	p := Plan{Clear: o.VMI.Status.EvacuationNodeName != ""}
	for _, m := range o.Migrations {
		if migration.MadeFor(m, v1.EvacuationMigrationAnnotation) && !begun(m, o.VMI) && m.DeletionTimestamp == nil {
			p.Cancel = append(p.Cancel, m)
		}
	}
	if len(p.Cancel) > 0 && !o.Asked {
		return Plan{Needs: NeedMigrations}
	}
	return p
}

// evacuate has the VMI migrated, by one migration at a time.
func (o *Observed) evacuate() Plan {
	pending := func(m *v1.VirtualMachineInstanceMigration) bool { return !m.IsFinal() }
	if migration.InFlight(o.VMI) || slices.ContainsFunc(o.Migrations, pending) {
		// Their changes are the next reason to look.
		return Plan{}
	}
	if migration.Movable(o.VMI) != nil {
		return o.cannotMove()
	}
	if left := migration.Pause(o.Migrations, o.Now); left > 0 {
		return Plan{After: left}
	}
	return Plan{Create: o.next()}
}

// disksInterval is how often it is looked whether the disks of a guest still go with it: nothing else tells
// when its VM does not allow that any more.
const disksInterval = 20 * time.Second

// cannotMove has a guest that can't be migrated stopped where its VMI asks for that. A cache
// may know it from before it could be migrated. One whose disks are brought to other claims can be
// migrated soon.
func (o *Observed) cannotMove() Plan {
	switch {
	case len(DiskMoves(o.VM, o.VMI)) > 0:
		return Plan{After: disksInterval}
	case o.VMI.Status.Phase != v1.Running || Strategy(o.VMI, o.Cluster) != v1.EvictionStrategyLiveMigrateIfPossible:
		return Plan{}
	case !o.Asked:
		return Plan{Needs: NeedMigrations}
	}
	return Plan{Stop: true}
}

// next is the migration that is made next.
func (o *Observed) next() *v1.VirtualMachineInstanceMigration {
	node := o.VMI.Status.EvacuationNodeName
	return migration.Automatic(o.VMI, v1.EvacuationMigrationAnnotation, node,
		layout.PodName("kubevirt-evacuation-", o.VMI.Name, "-"+layout.LongDigest(string(o.VMI.UID)+" "+node+" "+migration.LastFor(o.Migrations, v1.EvacuationMigrationAnnotation))))
}

// begun reports whether a migration has been handed over to the two virt-handlers, or has
// ended.
func begun(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance) bool {
	if ms := vmi.Status.MigrationState; ms != nil && ms.MigrationUID == m.UID {
		return true
	}
	switch m.Status.Phase {
	case v1.MigrationPhaseUnset, v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled:
		return false
	}
	return true
}
