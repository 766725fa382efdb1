// Package metrics counts VMs and VMIs for Prometheus, under KubeVirt's names.
//
// It owns the names and labels of virt-controller's own metrics. It counts the objects in the cache on each scrape,
// so it keeps no figures that could drift. It must not write, and must not read anything but the cache.
package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
)

var (
	phaseCount = prometheus.NewDesc("kubevirt_vmi_phase_count",
		"Sum of VMIs per phase and node.", []string{"node", "phase"}, nil)
	vmCount = prometheus.NewDesc("kubevirt_number_of_vms",
		"The number of VMs in the cluster by namespace.", []string{"namespace"}, nil)
	migrationsPending = prometheus.NewDesc("kubevirt_vmi_migrations_in_pending_phase",
		"Number of current pending migrations.", nil, nil)
	migrationsScheduling = prometheus.NewDesc("kubevirt_vmi_migrations_in_scheduling_phase",
		"Number of current scheduling migrations.", nil, nil)
	migrationsRunning = prometheus.NewDesc("kubevirt_vmi_migrations_in_running_phase",
		"Number of current running migrations.", nil, nil)
	nonEvictable = prometheus.NewDesc("kubevirt_vmi_non_evictable",
		"Indication for a VirtualMachine that its eviction strategy is set to Live Migration but is not migratable.",
		[]string{"node", "namespace", "name"}, nil)
	outdated = prometheus.NewDesc("kubevirt_vmi_number_of_outdated",
		"Number of VMIs whose launcher pod is not made of the newest image.", nil, nil)
	leading = prometheus.NewDesc("kubevirt_virt_controller_leading_status",
		"Indication for an operating virt-controller.", nil, nil)
	ready = prometheus.NewDesc("kubevirt_virt_controller_ready_status",
		"Indication for a virt-controller that is ready to take the lead.", nil, nil)
)

// Collector counts on demand. All fields are required.
type Collector struct {
	// Cache must not ask the API server.
	Cache client.Reader
	// Elected is closed when this process leads. Only the leader counts.
	Elected <-chan struct{}
	Image   string
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{phaseCount, vmCount, vmInfo, vmiInfo, migrationsPending, migrationsScheduling, migrationsRunning,
		nonEvictable, outdated, leading, ready} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	out <- gauge(ready, 1)
	select {
	case <-c.Elected:
	default:
		out <- gauge(leading, 0)
		return
	}
	out <- gauge(leading, 1)
	c.collectVMIs(out)
	c.collectVMs(out)
	c.collectMigrations(out)
}

// A migration whose target is being prepared counts as running.
func (c *Collector) collectMigrations(out chan<- prometheus.Metric) {
	var list v1.VirtualMachineInstanceMigrationList
	if err := c.Cache.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(migrationsPending, err)
		return
	}
	counts := map[*prometheus.Desc]int{migrationsPending: 0, migrationsScheduling: 0, migrationsRunning: 0}
	for i := range list.Items {
		switch list.Items[i].Status.Phase {
		case v1.MigrationPhaseUnset, v1.MigrationPending:
			counts[migrationsPending]++
		case v1.MigrationScheduling:
			counts[migrationsScheduling]++
		case v1.MigrationScheduled, v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning:
			counts[migrationsRunning]++
		}
	}
	for desc, n := range counts {
		out <- gauge(desc, n)
	}
}

func (c *Collector) collectVMIs(out chan<- prometheus.Metric) {
	var list v1.VirtualMachineInstanceList
	if err := c.Cache.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(phaseCount, err)
		return
	}
	pods, err := c.launcherPods()
	if err != nil {
		out <- prometheus.NewInvalidMetric(vmiInfo, err)
		return
	}
	type key struct{ node, phase string }
	counts, old := map[key]int{}, 0
	for i := range list.Items {
		vmi := &list.Items[i]
		counts[key{vmi.Status.NodeName, phase(vmi)}]++
		out <- c.instanceInfo(vmi, pods[place{vmi.UID, vmi.Status.NodeName}])
		if mustMigrate(vmi) {
			held := 0
			if c.held(vmi) {
				held = 1
			}
			out <- gauge(nonEvictable, held, vmi.Status.NodeName, vmi.Namespace, vmi.Name)
		}
		if workloadupdate.Outdated(vmi, c.Image) {
			old++
		}
	}
	out <- gauge(outdated, old)
	for k, n := range counts {
		out <- gauge(phaseCount, n, k.node, k.phase)
	}
}

// mustMigrate reports whether a VMI's guest runs and an eviction of its pod must migrate it.
func mustMigrate(vmi *v1.VirtualMachineInstance) bool {
	s := vmi.Spec.EvictionStrategy
	return s != nil && *s == v1.EvictionStrategyLiveMigrate && vmi.Status.Phase == v1.Running
}

// held reports whether a guest that must be migrated can't be, not even with its disks.
func (c *Collector) held(vmi *v1.VirtualMachineInstance) bool {
	if !mustMigrate(vmi) || migration.Movable(vmi) == nil {
		return false
	}
	var vm *v1.VirtualMachine // whose disks prevent the migration
	if migration.HeldByDisks(vmi) {
		owner := &v1.VirtualMachine{}
		err := c.Cache.Get(context.Background(), client.ObjectKeyFromObject(vmi), owner, client.UnsafeDisableDeepCopy)
		if err == nil { // the cache's only error is that it does not have the object
			vm = owner
		}
	}
	return len(evacuation.DiskMoves(vm, vmi)) == 0
}

func (c *Collector) collectVMs(out chan<- prometheus.Metric) {
	var list v1.VirtualMachineList
	if err := c.Cache.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(vmCount, err)
		return
	}
	counts := map[string]int{}
	for i := range list.Items {
		vm := &list.Items[i]
		counts[vm.Namespace]++
		out <- machineInfo(vm)
	}
	for namespace, n := range counts {
		out <- gauge(vmCount, n, namespace)
	}
}

func gauge(desc *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
}
