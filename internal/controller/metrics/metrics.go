// Package metrics counts VMs and VMIs for Prometheus, under KubeVirt's names.
//
// It maps fields of objects to the table of metrics. It reads the cache on each scrape, so that no figures drift; it keeps
// only the times of transitions (Transitions) and the numbers of values that guest agents have shown (shown). It must not
// write, and must read nothing but the cache.
package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

var (
	phaseCount           = metrictable.Of("kubevirt_vmi_phase_count")
	vmCount              = metrictable.Of("kubevirt_number_of_vms")
	migrationsUnset      = metrictable.Of("kubevirt_vmi_migrations_in_unset_phase")
	migrationsPending    = metrictable.Of("kubevirt_vmi_migrations_in_pending_phase")
	migrationsScheduling = metrictable.Of("kubevirt_vmi_migrations_in_scheduling_phase")
	migrationsRunning    = metrictable.Of("kubevirt_vmi_migrations_in_running_phase")
	migrationSucceeded   = metrictable.Of("kubevirt_vmi_migration_succeeded")
	migrationFailed      = metrictable.Of("kubevirt_vmi_migration_failed")
	snapshotSucceeded    = metrictable.Of("kubevirt_vmsnapshot_succeeded_timestamp_seconds")
	nonEvictable         = metrictable.Of("kubevirt_vmi_non_evictable")
	outdated             = metrictable.Of("kubevirt_vmi_number_of_outdated")
	emulation            = metrictable.Of("kubevirt_configuration_emulation_enabled")
	leading              = metrictable.Of("kubevirt_virt_controller_leading_status")
	ready                = metrictable.Of("kubevirt_virt_controller_ready_status")
)

// Collector counts on demand. All exported fields are required.
type Collector struct {
	// Cache must not ask the API server.
	Cache client.Reader
	// Elected is closed when this process leads. Only the leader counts.
	Elected <-chan struct{}
	// Ready reports whether this process could lead.
	Ready    func() bool
	Settings func(context.Context) (clusterconfig.Settings, error)
	Image    string
	// Namespace is that of Drydock's components.
	Namespace string

	// systems and addresses are what guest agents report of their systems and interfaces.
	systems, addresses shown
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, s := range []metrictable.Series{
		phaseCount, vmCount, vmInfo, vmCreated, vmRequests, vmLimits, vmDiskSize, vmNIC, vmiNIC, vmiInfo, vmiAddress, vmiOverhead, nonEvictable, outdated,
		migrationsUnset, migrationsPending, migrationsScheduling, migrationsRunning, migrationSucceeded, migrationFailed,
		migrationStart, migrationEnd, snapshotSucceeded, disksRestored, bytesRestored, emulation, leading, ready,
		nodesAll, nodesSchedulable, nodesWithKVM, silentGuests, stoppedGuest, podsOfPhase, podsDesired, podsReady,
	} {
		out <- s.Desc
	}
	for _, s := range sinceTransition {
		out <- s.Desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out <- ready.At(number(c.Ready()))
	select {
	case <-c.Elected:
	default:
		out <- leading.At(0)
		return
	}
	out <- leading.At(1)
	settings, err := c.Settings(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(emulation.Desc, err)
		return
	}
	out <- emulation.At(number(settings.UseEmulation))
	migrations := c.collectMigrations(ctx, out)
	vmis := c.collectVMIs(ctx, out, migrations, settings)
	c.collectVMs(ctx, out, vmis)
	c.collectSnapshots(ctx, out)
	c.collectRestores(ctx, out)
	c.collectNodes(ctx, out)
	c.collectComponents(ctx, out)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// maxLabel bounds, in bytes, the label values that tenants and guests choose.
const maxLabel = 128

func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "")
}

// distinct drops a second value of a metric for the same labels, which would invalidate the whole scrape: tenants write the
// lists of their objects.
type distinct struct {
	out  chan<- prometheus.Metric
	seen map[string]bool
}

func (d *distinct) send(s metrictable.Series, value float64, labels ...string) {
	key := strings.Join(labels, "\x00")
	if d.seen[key] {
		return
	}
	if d.seen == nil {
		d.seen = map[string]bool{}
	}
	d.seen[key] = true
	d.out <- s.At(value, labels...)
}

// patience limits a scrape, which waits for caches that are not filled.
const patience = 10 * time.Second

func list[L client.ObjectList](ctx context.Context, c *Collector, out chan<- prometheus.Metric, into L, about metrictable.Series) bool {
	if err := c.Cache.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(about.Desc, err)
		return false
	}
	return true
}

func (c *Collector) collectVMs(ctx context.Context, out chan<- prometheus.Metric, vmis map[client.ObjectKey]*v1.VirtualMachineInstance) {
	var all v1.VirtualMachineList
	if !list(ctx, c, out, &all, vmCount) {
		return
	}
	counts := map[string]int{}
	for i := range all.Items {
		vm := &all.Items[i]
		counts[vm.Namespace]++
		c.collectVM(ctx, out, vm, vmis[client.ObjectKeyFromObject(vm)])
	}
	for namespace, n := range counts {
		out <- vmCount.At(float64(n), namespace)
	}
}
