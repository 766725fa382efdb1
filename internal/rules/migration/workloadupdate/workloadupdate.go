// Package workloadupdate decides which guests move to a pod of the newest image: by a migration, or
// by an eviction of the pod, which stops the guest.
//
//	             another image,
//	             MigrationRequired or VolumesChange
//	up to date ──────────────────────────> outdated ──> migration (LiveMigrate)   ──> up to date
//	                                           └──────> eviction  (Evict), in batches: the VM starts it again
//
// The only state is the time of the last batch of evictions: the rest follows from a VMI's status and from the
// migrations. It must not import a client.
package workloadupdate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// KubeVirt's defaults for the batches of evictions.
const (
	defaultBatch    = 10
	defaultInterval = time.Minute
)

// Cluster is the input of a plan.
type Cluster struct {
	VMIs       []*v1.VirtualMachineInstance
	Migrations []*v1.VirtualMachineInstanceMigration
	Image      string // of new launcher pods
	Strategy   v1.KubeVirtWorkloadUpdateStrategy
	Eviction   v1.EvictionStrategy // the cluster's

	MostMigrations uint32    // at a time
	LastBatch      time.Time // of evictions; a new process uses its own start
	Now            time.Time
}

// Plan is the list of actions.
type Plan struct {
	Outdated int
	// Label and Unlabel are the VMIs that get or lose the label OutdatedLauncherImageLabel.
	Label, Unlabel []*v1.VirtualMachineInstance
	Migrate        []*v1.VirtualMachineInstanceMigration // to create; their names follow from their purpose
	Cancel         []*v1.VirtualMachineInstanceMigration // no longer needed
	Evict          []*v1.VirtualMachineInstance
	After          time.Duration // the requeue delay, zero for none
}

type planning struct {
	Cluster
	plan Plan
	// of has the migrations by VMI; underway counts this package's that have not ended.
	of       map[types.NamespacedName][]*v1.VirtualMachineInstanceMigration
	underway uint32
}

// Decide plans for all VMIs, the oldest first.
func Decide(c Cluster) Plan {
	p := &planning{Cluster: c, of: map[types.NamespacedName][]*v1.VirtualMachineInstanceMigration{}}
	for _, m := range c.Migrations {
		key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
		p.of[key] = append(p.of[key], m)
		if migration.MadeFor(m, v1.WorkloadUpdateMigrationAnnotation) && !m.IsFinal() {
			p.underway++
		}
	}
	oldestFirst := slices.SortedFunc(slices.Values(c.VMIs), func(a, b *v1.VirtualMachineInstance) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, vmi := range oldestFirst {
		p.planVMI(vmi)
	}
	p.cutBatch()
	return p.plan
}

func (p *planning) planVMI(vmi *v1.VirtualMachineInstance) {
	outdated := Outdated(vmi, p.Image)
	if outdated {
		p.plan.Outdated++
	}
	if vmi.DeletionTimestamp != nil {
		return
	}
	p.label(vmi, outdated)
	volumes := condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceVolumesChange)
	if !outdated && !volumes && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) {
		p.cancel(vmi)
		return
	}
	if busy(vmi) {
		return
	}
	movable := migration.Movable(vmi) == nil
	switch {
	case movable && (volumes || p.by(v1.WorkloadUpdateMethodLiveMigrate)):
		// The VM itself requests a migration of volumes.
		p.migrate(vmi, volumes)
	case outdated && p.by(v1.WorkloadUpdateMethodEvict) && (movable || !protected(vmi, p.Eviction)):
		p.plan.Evict = append(p.plan.Evict, vmi)
	}
}

// busy reports whether a guest must wait: it is starting or stopping, is already moving to a newer pod, or its node does
// not answer. Its eviction would take another guest's place in a batch.
func busy(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Status.Phase != v1.Running || vmi.IsMarkedForEviction() || migration.InFlight(vmi) ||
		vmistatus.Interrupted(vmi) || vmistatus.Unanswered(vmi)
}

func (p *planning) label(vmi *v1.VirtualMachineInstance, outdated bool) {
	switch _, labeled := vmi.Labels[v1.OutdatedLauncherImageLabel]; {
	case outdated && !labeled:
		p.plan.Label = append(p.plan.Label, vmi)
	case !outdated && labeled:
		p.plan.Unlabel = append(p.plan.Unlabel, vmi)
	}
}

// Outdated reports whether a guest may run in a pod of another image.
func Outdated(vmi *v1.VirtualMachineInstance, image string) bool {
	in := vmi.Status.LauncherContainerImageVersion
	return in != "" && in != image && (vmi.Status.Phase == v1.Running || vmi.Status.Phase == v1.Scheduled)
}

func (p *planning) by(method v1.WorkloadUpdateMethod) bool {
	return slices.Contains(p.Strategy.WorkloadUpdateMethods, method)
}

// protected reports whether an unmigratable guest's eviction would be refused: it would take a place in every batch.
func protected(vmi *v1.VirtualMachineInstance, cluster v1.EvictionStrategy) bool {
	switch evacuation.Strategy(vmi, cluster) {
	case v1.EvictionStrategyNone, v1.EvictionStrategyLiveMigrateIfPossible:
		return false
	}
	return true
}

// migrate creates a migration unless one is pending or has just ended, or as many run as may. volumes means that it copies
// disks to other claims: KubeVirt's clients find it by its label.
func (p *planning) migrate(vmi *v1.VirtualMachineInstance, volumes bool) {
	of := p.of[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}]
	pending := func(m *v1.VirtualMachineInstanceMigration) bool { return !m.IsFinal() }
	if p.underway >= p.MostMigrations || slices.ContainsFunc(of, pending) {
		return // their end causes the next decision
	}
	if left := migration.Pause(of, p.Now); left > 0 {
		p.plan.After = backoff.Sooner(p.plan.After, left)
		return
	}
	p.underway++
	m := migration.Automatic(vmi, v1.WorkloadUpdateMigrationAnnotation, "",
		layout.PodName("kubevirt-workload-update-", vmi.Name, "-"+layout.LongDigest(string(vmi.UID)+" "+p.Image+" "+migration.LastFor(of, v1.WorkloadUpdateMigrationAnnotation))))
	if volumes {
		m.Labels[v1.VolumesUpdateMigration] = volumesLabel(vmi)
	}
	p.plan.Migrate = append(p.plan.Migrate, m)
}

// volumesLabel returns the VMI's name or, if that is too long for a label, its UID.
func volumesLabel(vmi *v1.VirtualMachineInstance) string {
	if len(vmi.Name) > validation.LabelValueMaxLength {
		return string(vmi.UID)
	}
	return vmi.Name
}

// cancel is for a reverted change. A migration that was handed over continues.
func (p *planning) cancel(vmi *v1.VirtualMachineInstance) {
	for _, m := range p.of[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}] {
		begun := m.TargetIsHandedOff() || vmi.Status.MigrationState != nil && vmi.Status.MigrationState.MigrationUID == m.UID
		if migration.MadeFor(m, v1.WorkloadUpdateMigrationAnnotation) && !m.IsFinal() && m.DeletionTimestamp == nil && !begun {
			p.plan.Cancel = append(p.plan.Cancel, m)
		}
	}
}

// cutBatch keeps the evictions of one batch, and none before the interval has passed.
func (p *planning) cutBatch() {
	if len(p.plan.Evict) == 0 {
		return
	}
	batch, interval := defaultBatch, defaultInterval
	if size := p.Strategy.BatchEvictionSize; size != nil {
		batch = max(*size, 1)
	}
	if every := p.Strategy.BatchEvictionInterval; every != nil {
		interval = max(every.Duration, time.Second)
	}
	if left := p.LastBatch.Add(interval).Sub(p.Now); left > 0 {
		p.plan.Evict, p.plan.After = nil, backoff.Sooner(p.plan.After, left)
		return
	}
	p.plan.Evict = p.plan.Evict[:min(batch, len(p.plan.Evict))]
	p.plan.After = backoff.Sooner(p.plan.After, interval)
}

// Labeled sets or removes the label for an outdated pod.
func Labeled(vmi *v1.VirtualMachineInstance, outdated bool) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	delete(out.Labels, v1.OutdatedLauncherImageLabel)
	if outdated {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[v1.OutdatedLauncherImageLabel] = ""
	}
	return out
}
