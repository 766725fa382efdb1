package migrate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/contracts/layout"
)

var stages = []string{"created", "pod", "bound", "container", "handed_over", "ready", "started", "completed", "succeeded"}

// course has the times of a migration's stages. Three watches write it.
type course struct {
	// known is the UID of the previous migration, sources are the UIDs of its pods.
	known   types.UID
	sources []types.UID

	mu      sync.Mutex
	at      map[string]time.Time
	failure string
}

func (c *course) note(seen map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stage, holds := range seen {
		if _, noted := c.at[stage]; holds && !noted {
			c.at[stage] = time.Now()
		}
	}
}

func (c *course) sawPod(_ watch.EventType, o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	if !ok || slices.Contains(c.sources, pod.UID) {
		return false
	}
	runs := pod.Status.Phase == corev1.PodRunning
	c.note(map[string]bool{"pod": true, "bound": pod.Spec.NodeName != "", "container": runs})
	return runs
}

func (c *course) sawVMI(_ watch.EventType, o client.Object) bool {
	vmi, ok := o.(*v1.VirtualMachineInstance)
	if !ok || vmi.Status.MigrationState == nil || vmi.Status.MigrationState.MigrationUID == c.known {
		return false
	}
	m := vmi.Status.MigrationState
	c.note(map[string]bool{
		"handed_over": true, "ready": m.TargetNodeAddress != "", "started": m.StartTimestamp != nil, "completed": m.Completed,
	})
	return m.Completed || m.Failed
}

func (c *course) sawMigration(_ watch.EventType, o client.Object) bool {
	m, ok := o.(*v1.VirtualMachineInstanceMigration)
	if !ok || !m.IsFinal() {
		return false
	}
	c.note(map[string]bool{"succeeded": m.Status.Phase == v1.MigrationSucceeded})
	if m.Status.Phase != v1.MigrationSucceeded {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failure = "it is " + string(m.Status.Phase)
		if state := m.Status.MigrationState; state != nil {
			c.failure += ": " + state.FailureReason
		}
	}
	return true
}

// durations returns the duration of each stage by its number and name. A stage that was observed before
// its predecessor counts as zero.
func (c *course) durations() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]time.Duration{}
	for i, to := range stages[1:] {
		from := stages[i]
		out[fmt.Sprintf("stage_%d_%s_to_%s", i+1, from, to)] = max(0, c.at[to].Sub(c.at[from]))
	}
	return out
}

func (c *course) total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at["succeeded"].Sub(c.at["created"])
}

type moved struct {
	course *course
	// The source's pod remained after the success.
	gone time.Duration
	told figures
	// writes are Drydock's, all those of all components.
	writes, all int
}

func (s *setting) migrateVMI(ctx context.Context, name string) (moved, error) {
	before, err := readFigures(ctx, s.cluster)
	if err != nil {
		return moved{}, err
	}
	began := time.Now()
	migration := newMigration(s.namespace, name, guestName)
	out := moved{}
	if out.course, err = s.follow(ctx, migration); err != nil {
		return moved{}, err
	}
	if out.gone, err = s.awaitSourceGone(ctx, out.course); err != nil {
		return moved{}, err
	}
	if err := cluster.Wait(ctx, cluster.Settle); err != nil {
		return moved{}, err
	}
	if err := out.count(s, began); err != nil {
		return moved{}, err
	}
	after, err := readFigures(ctx, s.cluster)
	if err != nil {
		return moved{}, err
	}
	out.told = after.minus(before)
	if out.told.migrations != 1 {
		return moved{}, fmt.Errorf("reading what virt-handler says of a migration: it has counted %g", out.told.migrations)
	}
	// Drydock keeps only a few finished migrations: without this, later rounds would pay for the removal
	// of earlier ones.
	return out, s.cluster.DeleteAndAwait(ctx, migration)
}

func newMigration(namespace, name, vmi string) *v1.VirtualMachineInstanceMigration {
	return &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: vmi},
	}
}

func (s *setting) follow(ctx context.Context, migration *v1.VirtualMachineInstanceMigration) (*course, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	c := &course{at: map[string]time.Time{}}
	pods, err := s.launchers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		c.sources = append(c.sources, pods[i].UID)
	}
	var vmi v1.VirtualMachineInstance
	if err := s.cluster.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: guestName}, &vmi); err != nil {
		return nil, fmt.Errorf("reading the VMI: %w", err)
	}
	if m := vmi.Status.MigrationState; m != nil {
		c.known = m.MigrationUID
	}
	ends, err := s.watch(ctx, c, migration.Name)
	if err != nil {
		return nil, err
	}
	c.note(map[string]bool{"created": true})
	if err := s.cluster.Client.Create(ctx, migration); err != nil {
		return nil, fmt.Errorf("creating a migration: %w", err)
	}
	for _, end := range ends {
		if err := <-end; err != nil {
			return nil, fmt.Errorf("following a migration: %w", err)
		}
		if c.failure != "" {
			return nil, fmt.Errorf("the migration has not succeeded: %s", c.failure)
		}
	}
	return c, nil
}

// The first channel yields the migration's own end.
func (s *setting) watch(ctx context.Context, c *course, migration string) ([]<-chan error, error) {
	var ends []<-chan error
	for _, w := range []struct {
		list     client.ObjectList
		selector client.ListOption
		see      func(watch.EventType, client.Object) bool
	}{
		{&v1.VirtualMachineInstanceMigrationList{}, cluster.Named(migration), c.sawMigration},
		{&v1.VirtualMachineInstanceList{}, cluster.Named(guestName), c.sawVMI},
		{&corev1.PodList{}, ofGuest, c.sawPod},
	} {
		end, err := s.cluster.Watch(ctx, w.list, s.namespace, w.selector, w.see)
		if err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	return ends, nil
}

var ofGuest = client.MatchingLabels{v1.AppLabel: layout.LauncherApp}

// The VMI is the only one in its namespace.
func (s *setting) launchers(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.cluster.Client.List(ctx, &pods, client.InNamespace(s.namespace), ofGuest); err != nil {
		return nil, fmt.Errorf("listing launcher pods: %w", err)
	}
	return pods.Items, nil
}

func (s *setting) awaitSourceGone(ctx context.Context, c *course) (time.Duration, error) {
	err := cluster.Eventually(ctx, "the source's pod to be gone", func(ctx context.Context) (bool, error) {
		pods, err := s.launchers(ctx)
		return err == nil && len(pods) == 1 && !slices.Contains(c.sources, pods[0].UID), err
	})
	return time.Since(c.at["succeeded"]), err
}

func (m *moved) count(s *setting, began time.Time) error {
	all, err := audit.AllSince(s.logs, began)
	if err != nil {
		return err
	}
	all = audit.Of(all, func(q audit.Request) bool { return q.Namespace == s.namespace && !audit.OfNamespace(q) })
	drydocks := audit.Of(all, func(q audit.Request) bool { return q.Drydock })
	m.all, m.writes = audit.Count(all, audit.Write), audit.Count(drydocks, audit.Write)
	if !s.listed {
		s.listed = true
		s.report.Logf("one migration, by component, verb and resource:")
		for _, line := range audit.Sums(all) {
			s.report.Logf("%s", line)
		}
	}
	return nil
}
