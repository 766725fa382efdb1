package evacuation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
)

// Question is a question that only the API server can answer.
type Question int

// The questions.
const (
	NeedNothing    Question = iota
	NeedNode                // the node that the VMI is marked for
	NeedMigrations          // the VMI and its migrations
)

// Observed is the observed state of a VMI.
type Observed struct {
	VMI *v1.VirtualMachineInstance
	// VM is the VMI's, nil if it has none or it was not read: it counts only if migration.HeldByDisks.
	VM *v1.VirtualMachine
	// Node is the one for which the VMI is marked, nil for none. NodeAsked means that it comes from the API server.
	Node      *corev1.Node
	NodeAsked bool
	// Migrations are for the VMI's name. Asked means that they, the VMI and the VM come from the API server.
	Migrations []*v1.VirtualMachineInstanceMigration
	Asked      bool
	Cluster    v1.EvictionStrategy
	Now        time.Time
}

// Plan lists the actions for a VMI, in the order of the fields.
type Plan struct {
	Needs  Question                              // before any action
	Cancel []*v1.VirtualMachineInstanceMigration // obsolete ones that have not begun
	Clear  bool
	Stop   bool // deletes the guest's pod
	// Create is nil for none. Its name follows from its purpose, so AlreadyExists is a success.
	Create *v1.VirtualMachineInstanceMigration
	After  time.Duration // the requeue delay, zero for none
}

// Decide plans for a VMI.
func Decide(o Observed) Plan {
	vmi := o.VMI
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		return Plan{}
	}
	node := vmi.Status.EvacuationNodeName
	uncordoned := node != "" && vmi.Annotations[CordonAnnotation] == node && o.Node != nil && !o.Node.Spec.Unschedulable
	switch {
	case node == "" || node != vmi.Status.NodeName:
		return o.end()
	case Strategy(vmi, o.Cluster) == v1.EvictionStrategyNone:
		return o.end()
	case uncordoned && !o.NodeAsked:
		// A cache may show the node before the drain.
		return Plan{Needs: NeedNode}
	case uncordoned:
		return o.end()
	case Strategy(vmi, o.Cluster) == v1.EvictionStrategyExternal:
		return Plan{}
	}
	return o.evacuate()
}

// end removes the mark and the migrations that have not begun.
func (o *Observed) end() Plan {
	p := Plan{Clear: o.VMI.Status.EvacuationNodeName != ""}
	for _, m := range o.Migrations {
		if migration.MadeFor(m, v1.EvacuationMigrationAnnotation) && !hasBegun(m, o.VMI) && m.DeletionTimestamp == nil {
			p.Cancel = append(p.Cancel, m)
		}
	}
	if len(p.Cancel) > 0 && !o.Asked {
		return Plan{Needs: NeedMigrations}
	}
	return p
}

// evacuate migrates the VMI, by one migration at a time. It stops a guest that can't be migrated, if its VMI asks for that,
// except while its disks are being moved to other claims.
func (o *Observed) evacuate() Plan {
	pending := func(m *v1.VirtualMachineInstanceMigration) bool { return !m.IsFinal() }
	if migration.InFlight(o.VMI) || slices.ContainsFunc(o.Migrations, pending) {
		return Plan{} // their changes cause the next decision
	}
	if migration.Movable(o.VMI) != nil {
		switch {
		case len(DiskMoves(o.VM, o.VMI)) > 0:
			return Plan{After: disksInterval}
		case o.VMI.Status.Phase != v1.Running || Strategy(o.VMI, o.Cluster) != v1.EvictionStrategyLiveMigrateIfPossible:
			return Plan{}
		case !o.Asked:
			// A cache may be older than the ability to migrate.
			return Plan{Needs: NeedMigrations}
		}
		return Plan{Stop: true}
	}
	if left := migration.Pause(o.Migrations, o.Now); left > 0 {
		return Plan{After: left}
	}
	return Plan{Create: o.next()}
}

// No event says that a VM no longer allows its disks to migrate with the guest.
const disksInterval = 20 * time.Second

func (o *Observed) next() *v1.VirtualMachineInstanceMigration {
	node := o.VMI.Status.EvacuationNodeName
	return migration.Automatic(o.VMI, v1.EvacuationMigrationAnnotation, node,
		layout.PodName("kubevirt-evacuation-", o.VMI.Name, "-"+layout.LongDigest(string(o.VMI.UID)+" "+node+" "+migration.LastFor(o.Migrations, v1.EvacuationMigrationAnnotation))))
}

// hasBegun reports whether a migration was handed over to the two virt-handlers, or has ended.
func hasBegun(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance) bool {
	if ms := vmi.Status.MigrationState; ms != nil && ms.MigrationUID == m.UID {
		return true
	}
	switch m.Status.Phase {
	case v1.MigrationPhaseUnset, v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled:
		return false
	}
	return true
}
