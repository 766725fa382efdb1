package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable"
)

// transitionBuckets are KubeVirt's, in seconds.
var transitionBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}

// Transitions counts how long VMIs and migrations needed for their phases, by the changes that the leader sees. Its labels
// are phases only.
type Transitions struct {
	elected                                                <-chan struct{}
	between, fromCreation, fromDeletion, migrationCreation *prometheus.HistogramVec
}

// NewTransitions returns a Transitions that counts from the election on.
func NewTransitions(elected <-chan struct{}) *Transitions {
	histogram := func(name string) *prometheus.HistogramVec {
		m := metrictable.Get(name)
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: transitionBuckets}, m.Labels)
	}
	return &Transitions{
		elected:           elected,
		between:           histogram("kubevirt_vmi_phase_transition_time_seconds"),
		fromCreation:      histogram("kubevirt_vmi_phase_transition_time_from_creation_seconds"),
		fromDeletion:      histogram("kubevirt_vmi_phase_transition_time_from_deletion_seconds"),
		migrationCreation: histogram("kubevirt_vmi_migration_phase_transition_time_from_creation_seconds"),
	}
}

func (t *Transitions) all() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{t.between, t.fromCreation, t.fromDeletion, t.migrationCreation}
}

// Describe implements prometheus.Collector.
func (t *Transitions) Describe(out chan<- *prometheus.Desc) {
	for _, h := range t.all() {
		h.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (t *Transitions) Collect(out chan<- prometheus.Metric) {
	for _, h := range t.all() {
		h.Collect(out)
	}
}

// Watch counts the changes that the cache sees.
func (t *Transitions) Watch(ctx context.Context, informers cache.Cache) error {
	for kind, changed := range map[client.Object]func(before, after any){
		&v1.VirtualMachineInstance{}: func(before, after any) {
			from, was := before.(*v1.VirtualMachineInstance)
			if to, is := after.(*v1.VirtualMachineInstance); was && is {
				t.vmi(from, to)
			}
		},
		&v1.VirtualMachineInstanceMigration{}: func(before, after any) {
			from, was := before.(*v1.VirtualMachineInstanceMigration)
			if to, is := after.(*v1.VirtualMachineInstanceMigration); was && is {
				t.migration(from, to)
			}
		},
	} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: changed})
		}
		if err != nil {
			return fmt.Errorf("watching the phases of %T: %w", kind, err)
		}
	}
	return nil
}

func (t *Transitions) leads() bool {
	select {
	case <-t.elected:
		return true
	default:
		return false
	}
}

// vmi counts each phase that a write entered: some enter two. A new VMI of the same name is no change of the earlier one.
func (t *Transitions) vmi(before, after *v1.VirtualMachineInstance) {
	if before.UID != after.UID || !t.leads() {
		return
	}
	entered := after.Status.PhaseTransitionTimestamps
	known := map[v1.VirtualMachineInstancePhase]bool{}
	for _, e := range before.Status.PhaseTransitionTimestamps {
		known[e.Phase] = true
	}
	last, since := v1.VmPhaseUnset, after.CreationTimestamp
	for _, e := range entered {
		if !known[e.Phase] && isPhase(e.Phase) {
			t.between.WithLabelValues(string(e.Phase), string(last)).Observe(seconds(since, e.PhaseTransitionTimestamp))
			t.fromCreation.WithLabelValues(string(e.Phase)).Observe(seconds(after.CreationTimestamp, e.PhaseTransitionTimestamp))
			if after.DeletionTimestamp != nil && after.IsFinal() {
				t.fromDeletion.WithLabelValues(string(e.Phase)).Observe(seconds(*after.DeletionTimestamp, e.PhaseTransitionTimestamp))
			}
		}
		if isPhase(e.Phase) {
			last, since = e.Phase, e.PhaseTransitionTimestamp
		}
	}
}

func isPhase(phase v1.VirtualMachineInstancePhase) bool {
	switch phase {
	case v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed:
		return true
	}
	return false
}

func (t *Transitions) migration(before, after *v1.VirtualMachineInstanceMigration) {
	if before.UID != after.UID || !t.leads() {
		return
	}
	known := map[v1.VirtualMachineInstanceMigrationPhase]bool{}
	for _, e := range before.Status.PhaseTransitionTimestamps {
		known[e.Phase] = true
	}
	for _, e := range after.Status.PhaseTransitionTimestamps {
		if !known[e.Phase] && isMigrationPhase(e.Phase) {
			t.migrationCreation.WithLabelValues(string(e.Phase)).Observe(seconds(after.CreationTimestamp, e.PhaseTransitionTimestamp))
		}
	}
}

func isMigrationPhase(phase v1.VirtualMachineInstanceMigrationPhase) bool {
	switch phase {
	case v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled, v1.MigrationPreparingTarget, v1.MigrationTargetReady,
		v1.MigrationRunning, v1.MigrationSucceeded, v1.MigrationFailed:
		return true
	}
	return false
}

// seconds is not negative: the clocks of two nodes differ.
func seconds(from, to metav1.Time) float64 {
	return max(0, to.Sub(from.Time)).Seconds()
}
