// Package workloadupdate decides which guests are brought into a pod of the newest image,
// and how: by a migration, or by evicting the pod, which has its guest stopped.
//
//	             the image is another one,
//	             MigrationRequired or VolumesChange
//	up to date ──────────────────────────> outdated ──> migration (LiveMigrate)   ──> up to date
//	                                           └──────> eviction  (Evict), in batches: the VM starts it again
//
// Nothing is remembered but when the last batch was evicted: what a VMI's status says of its
// pod's image, and the migrations that there are, say the rest. It must not import a client.
package workloadupdate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/evacuation"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// KubeVirt's defaults for the batches of evictions.
const (
	defaultBatch    = 10
	defaultInterval = time.Minute
)

// Cluster is what a plan is made from.
type Cluster struct {
	VMIs       []*v1.VirtualMachineInstance
	Migrations []*v1.VirtualMachineInstanceMigration
	// Image is what new launcher pods are made of.
	Image    string
	Strategy v1.KubeVirtWorkloadUpdateStrategy
	// Eviction is the cluster's strategy for evictions, MostMigrations how many
	// migrations run at a time.
	Eviction       v1.EvictionStrategy
	MostMigrations uint32
	// LastBatch is when pods were evicted last. A process that does not know it says when
	// it began to work.
	LastBatch time.Time
	Now       time.Time
}

// Plan is what is to be done.
type Plan struct {
	// Outdated is how many guests run in a pod of another image.
	Outdated int
	// Label and Unlabel are the VMIs whose label OutdatedLauncherImageLabel is to be set
	// and taken off.
	Label, Unlabel []*v1.VirtualMachineInstance
	// Migrate are migrations that are to be made. Their names follow from what they are for.
	Migrate []*v1.VirtualMachineInstanceMigration
	// Cancel are migrations that have lost their reason.
	Cancel []*v1.VirtualMachineInstanceMigration
	// Evict are VMIs whose pod is to be evicted: one batch.
	Evict []*v1.VirtualMachineInstance
	// After asks for another look, zero for none.
	After time.Duration
}

// planning is a plan that is being made.
type planning struct {
	Cluster
	plan Plan
	// of are the migrations by VMI; underway counts those of this package that have not
	// ended.
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
	for _, vmi := range oldestFirst(c.VMIs) {
		p.consider(vmi)
	}
	p.cutBatch()
	return p.plan
}

func oldestFirst(vmis []*v1.VirtualMachineInstance) []*v1.VirtualMachineInstance {
	return slices.SortedFunc(slices.Values(vmis), func(a, b *v1.VirtualMachineInstance) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// consider decides about one VMI.
func (p *planning) consider(vmi *v1.VirtualMachineInstance) {
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
		// A migration of volumes is asked for by the VM itself.
		p.migrate(vmi)
	case outdated && p.by(v1.WorkloadUpdateMethodEvict) && (movable || !protected(vmi, p.Eviction)):
		p.plan.Evict = append(p.plan.Evict, vmi)
	}
}

// busy reports whether there is nothing to be done for a guest now: it starts or ends; it is moved
// already, by whomever, which brings it into a newer pod, too; or its node does not answer, so that
// nobody knows how it is. An eviction would be no news to it, and would take another one's place.
func busy(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Status.Phase != v1.Running || vmi.IsMarkedForEviction() || migration.InFlight(vmi) ||
		vmistatus.Interrupted(vmi) || vmistatus.Unanswered(vmi)
}

// label has a VMI's label say whether it is outdated.
func (p *planning) label(vmi *v1.VirtualMachineInstance, outdated bool) {
	switch _, labeled := vmi.Labels[v1.OutdatedLauncherImageLabel]; {
	case outdated && !labeled:
		p.plan.Label = append(p.plan.Label, vmi)
	case !outdated && labeled:
		p.plan.Unlabel = append(p.plan.Unlabel, vmi)
	}
}

// Outdated reports whether a VMI's guest may run in a pod of another image than that.
func Outdated(vmi *v1.VirtualMachineInstance, image string) bool {
	in := vmi.Status.LauncherContainerImageVersion
	return in != "" && in != image && (vmi.Status.Phase == v1.Running || vmi.Status.Phase == v1.Scheduled)
}

func (p *planning) by(method v1.WorkloadUpdateMethod) bool {
	return slices.Contains(p.Strategy.WorkloadUpdateMethods, method)
}

// protected reports whether an eviction would be refused of a guest that can't be migrated,
// so that it must not take a place in every batch.
func protected(vmi *v1.VirtualMachineInstance, cluster v1.EvictionStrategy) bool {
	switch evacuation.Strategy(vmi, cluster) {
	case v1.EvictionStrategyNone, v1.EvictionStrategyLiveMigrateIfPossible:
		return false
	}
	return true
}

// migrate has a VMI migrated, unless it is being migrated, or was a moment ago. No more are
// asked for than may run, so that those who wait need no object.
func (p *planning) migrate(vmi *v1.VirtualMachineInstance) {
	of := p.of[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}]
	pending := func(m *v1.VirtualMachineInstanceMigration) bool { return !m.IsFinal() }
	if p.underway >= p.MostMigrations || slices.ContainsFunc(of, pending) {
		// Their ends are the next reason to look.
		return
	}
	if left := migration.Pause(of, p.Now); left > 0 {
		p.plan.After = backoff.Sooner(p.plan.After, left)
		return
	}
	p.underway++
	p.plan.Migrate = append(p.plan.Migrate, migration.Automatic(vmi, v1.WorkloadUpdateMigrationAnnotation, "",
		layout.PodName("kubevirt-workload-update-", vmi.Name, "-"+layout.LongDigest(string(vmi.UID)+" "+p.Image+" "+migration.LastFor(of, v1.WorkloadUpdateMigrationAnnotation)))))
}

// cancel takes back the migrations of a VMI that were made for what it does not need any more: a change was taken back. One
// that the VMI has been handed over with goes on.
func (p *planning) cancel(vmi *v1.VirtualMachineInstance) {
	for _, m := range p.of[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}] {
		begun := m.TargetIsHandedOff() || vmi.Status.MigrationState != nil && vmi.Status.MigrationState.MigrationUID == m.UID
		if migration.MadeFor(m, v1.WorkloadUpdateMigrationAnnotation) && !m.IsFinal() && m.DeletionTimestamp == nil && !begun {
			p.plan.Cancel = append(p.plan.Cancel, m)
		}
	}
}

// cutBatch leaves of the evictions those of one batch, and none before its time.
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

// Labeled returns the VMI with the label that says whether its pod is outdated.
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
