//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// A long run needs more guests than every run can afford: see `make soak`.
var guestsAtOnce = flag.Int("migration.atonce", 5, "how many guests migrate at the same time")

// TestManyGuestsMigrateAtOnce migrates several guests at once, each with a limited bandwidth, including one that
// booted from a kernel in an image. All must arrive, and none may be started again. Only here real QEMUs share the
// nodes; bench/migrate compares the duration with the bandwidth. Not parallel: it sets the cluster's limits.
func TestManyGuestsMigrateAtOnce(t *testing.T) {
	onlyInTestAll(t)
	const bandwidth = 64
	count := *guestsAtOnce
	ns := newNamespace(t)
	configure(t, fmt.Sprintf(`{"spec":{"configuration":{"migrations":{"parallelMigrationsPerCluster":%d,"parallelOutboundMigrationsPerNode":%d,"bandwidthPerMigration":"%dMi"}}}}`,
		count, count, bandwidth), `{"spec":{"configuration":{"migrations":null}}}`)
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("many-%d", i))
		vmi := newVMI(ns, names[i])
		vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
		vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
			Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
		}}
		if i == 0 {
			fromKernel(vmi)
		}
		create(t, newVM(vmi, v1.RunStrategyAlways))
	}
	boots, nodes := map[string]string{}, map[string]string{}
	for _, name := range names {
		awaitPrintable(t, ns, name, v1.VirtualMachineStatusRunning)
		boots[name] = login(t, ns, name).bootID()
		nodes[name] = awaitMigratable(t, ns, name).Status.NodeName
	}
	began := time.Now()
	var all []*v1.VirtualMachineInstanceMigration
	for _, name := range names {
		m := newMigration(ns, name)
		create(t, m)
		all = append(all, m)
	}
	for _, m := range all {
		awaitEnd(t, m, v1.MigrationSucceeded)
	}
	t.Logf("figure migration: %d guests at once, with %d MiB/s each: %.1f s", count, bandwidth, time.Since(began).Seconds())
	for _, name := range names {
		vmi := awaitVMI(t, ns, name, "Ready on the other node", func(vmi *v1.VirtualMachineInstance) bool {
			return vmi.Status.NodeName == otherThan(nodes[name]) && ready(vmi)
		})
		awaitOneLauncher(t, vmi, vmi.Status.NodeName)
		if login(t, ns, name).bootID() != boots[name] {
			t.Errorf("%s was started again", name)
		}
	}
}
