package metrics

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

var (
	vmiAddress  = metrictable.Of("kubevirt_vmi_status_addresses")
	vmiOverhead = metrictable.Of("kubevirt_vmi_launcher_memory_overhead_bytes")
)

func (c *Collector) collectVMIs(ctx context.Context, out chan<- prometheus.Metric, migrations map[types.UID]string, settings clusterconfig.Settings) map[client.ObjectKey]*v1.VirtualMachineInstance {
	var all v1.VirtualMachineInstanceList
	if !list(ctx, c, out, &all, phaseCount) {
		return nil
	}
	pods, err := c.launcherPods(ctx, out)
	if err != nil {
		out <- prometheus.NewInvalidMetric(vmiInfo.Desc, err)
		return nil
	}
	byName, counts, old := map[client.ObjectKey]*v1.VirtualMachineInstance{}, map[properties]int{}, 0
	silent := map[string]int{}
	exists := make(map[types.UID]bool, len(all.Items))
	for i := range all.Items {
		vmi := &all.Items[i]
		exists[vmi.UID] = true
		byName[client.ObjectKeyFromObject(vmi)] = vmi
		has := c.propertiesOf(vmi)
		counts[has]++
		out <- c.instanceInfo(ctx, vmi, has, pods[place{vmi.UID, vmi.Status.NodeName}])
		if mustMigrate(vmi) {
			out <- nonEvictable.At(number(c.held(ctx, vmi)), vmi.Status.NodeName, vmi.Namespace, vmi.Name)
		}
		if workloadupdate.Outdated(vmi, c.Image) {
			old++
		}
		if vmi.Status.NodeName != "" && vmistatus.Unanswered(vmi) {
			silent[vmi.Status.NodeName]++
		}
		if reason := vmistatus.Standstill(vmi); reason != "" {
			out <- stoppedGuest.At(1, vmi.Status.NodeName, vmi.Namespace, vmi.Name, reason)
		}
		if overhead, err := launcherpod.Overhead(vmi, settings); err == nil {
			out <- vmiOverhead.At(float64(overhead), vmi.Namespace, vmi.Name)
		}
		collectLastMigration(out, vmi, migrations)
		c.collectAddresses(out, vmi)
		collectNICs(out, vmiNIC, client.ObjectKeyFromObject(vmi), &vmi.Spec)
	}
	c.systems.keep(exists)
	c.addresses.keep(exists)
	out <- outdated.At(float64(old))
	for node, n := range silent {
		out <- silentGuests.At(float64(n), node)
	}
	for has, n := range counts {
		out <- phaseCount.At(float64(n), has[:]...)
	}
	return byName
}

const (
	withAddress    = "ExternalInterface"
	withoutAddress = "SystemInterface"
)

// collectAddresses leaves out interfaces that only the guest agent knows: their number and names are the guest's.
func (c *Collector) collectAddresses(out chan<- prometheus.Metric, vmi *v1.VirtualMachineInstance) {
	each := distinct{out: out}
	for i := range vmi.Status.Interfaces {
		of := &vmi.Status.Interfaces[i]
		known := func(s v1.Interface) bool { return s.Name == of.Name }
		if !slices.ContainsFunc(vmi.Spec.Domain.Devices.Interfaces, known) {
			continue
		}
		address := ""
		if ip, err := netip.ParseAddr(of.IP); err == nil {
			address = ip.WithZone("").String()
		}
		name := label(of.Name)
		said := c.addresses.bound(vmi.UID, time.Now(), name, label(of.InterfaceName), address)
		kind := withoutAddress
		if said[2] != "" {
			kind = withAddress
		}
		each.send(vmiAddress, 1, vmi.Status.NodeName, vmi.Namespace, vmi.Name, name, said[1], said[2], kind)
	}
}

// mustMigrate reports whether a VMI's guest runs and an eviction of its pod must migrate it.
func mustMigrate(vmi *v1.VirtualMachineInstance) bool {
	s := vmi.Spec.EvictionStrategy
	return s != nil && *s == v1.EvictionStrategyLiveMigrate && vmi.Status.Phase == v1.Running
}

// held reports whether a guest that must be migrated can't be, not even with its disks.
func (c *Collector) held(ctx context.Context, vmi *v1.VirtualMachineInstance) bool {
	if !mustMigrate(vmi) || migration.Movable(vmi) == nil {
		return false
	}
	var vm *v1.VirtualMachine // whose disks prevent the migration
	if migration.HeldByDisks(vmi) {
		owner := &v1.VirtualMachine{}
		err := c.Cache.Get(ctx, client.ObjectKeyFromObject(vmi), owner, client.UnsafeDisableDeepCopy)
		if err == nil { // a filled cache's only error is that it does not have the object; another one makes the scrape fail
			vm = owner
		}
	}
	return len(evacuation.DiskMoves(vm, vmi)) == 0
}
