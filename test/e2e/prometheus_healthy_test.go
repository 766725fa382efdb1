//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"testing"
	"time"

	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

var healthyFor = flag.Duration("prometheus.healthy", 2*time.Minute, "how long guests start, migrate, are snapshotted and drained, without any alert")

// TestAHealthyClusterFiresNoAlert lets guests start, migrate, be snapshotted, leave a drained node and end, again and again.
// None of the shipped alerts may fire, with the shipped waits. It runs alone: other tests make faults.
func TestAHealthyClusterFiresNoAlert(t *testing.T) {
	onlyInTestAll(t)
	s := startMonitoring(t, nil)
	ns := newNamespace(t)
	warnsOfNothing(t, ns)
	inTurn(t,
		chapter{"every pod is scraped, with a token", s.podsAreScraped},
		chapter{"every rule is evaluated", s.rulesAreEvaluated},
	)
	kept := bootVM(t, evictable(newMigratableVM(t, ns, "kept")))
	boot, rounds, until := kept.bootID(), 0, time.Now().Add(*healthyFor)
	// A guest of its own for each round: many migrations of one guest are a fault (KubeVirtVMIExcessiveMigrations).
	for rounds == 0 || time.Now().Before(until) && !t.Failed() {
		rounds++
		t.Run(fmt.Sprint("round ", rounds), func(t *testing.T) { usualDay(t, ns, fmt.Sprint("round-", rounds)) })
	}
	if now := login(t, ns, "kept").bootID(); now != boot {
		t.Error("the guest that nobody touched was started again")
	}
	s.neverFired(t, rounds)
}

// usualDay is the life of one guest, with two migrations, a snapshot and a drain.
func usualDay(t *testing.T, ns, name string) {
	vm := evictable(newMigratableVM(t, ns, name))
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"vm": name}
	g := bootVM(t, vm)
	boot := g.bootID()
	awaitMigratable(t, ns, name)
	snapshotOf(t, ns, name, name, func(s *snapshotv1.VirtualMachineSnapshotStatus) bool { return s.ReadyToUse != nil && *s.ReadyToUse })
	migrated(t, ns, name)
	before := migrated(t, ns, name)
	uncordon := cordon(t, before.Status.NodeName)
	if out, err := drain(t, before.Status.NodeName, "vm="+name); err != nil {
		t.Fatalf("draining %s: %v\n%s", before.Status.NodeName, err, out)
	}
	awaitMoved(t, before)
	uncordon()
	if login(t, ns, name).bootID() != boot {
		t.Error("the guest was started again")
	}
	removeVM(t, ns, name)
	snap := &snapshotv1.VirtualMachineSnapshot{}
	snap.Namespace, snap.Name = ns, name
	deleteObject(t, snap)
	awaitGone(t, snap)
	root := &cdiv1.DataVolume{}
	root.Namespace, root.Name = ns, name+"-root"
	deleteObject(t, root)
}

// neverFired asks for all alerts since the test's beginning.
func (s *monitoringStack) neverFired(t *testing.T, rounds int) {
	t.Helper()
	since := time.Since(s.began).Round(time.Second)
	back := fmt.Sprintf("[%ds]", int(since.Seconds()))
	fired, err := s.query(t.Context(), `count_over_time(ALERTS{alertstate="firing"}`+back+`)`)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range fired {
		t.Errorf("without a fault, an alert fired for %v of %v: %v", time.Duration(alert.number())*scrapeEvery, since, alert.Metric)
	}
	if sent := s.alerts.list(); len(sent) > 0 {
		t.Errorf("without a fault, Alertmanager has sent %v", sent)
	}
	// A Prometheus that evaluates nothing has no alerts either.
	evaluated, err := s.query(t.Context(), `count_over_time(cluster:kubevirt_virt_handler_ready:sum`+back+`)`)
	if err != nil {
		t.Fatal(err)
	}
	if least := since.Seconds() / scrapeEvery.Seconds() / 2; len(evaluated) != 1 || evaluated[0].number() < least {
		t.Errorf("in %v, the rules were evaluated %v times, want at least %v", since, evaluated, least)
	}
	waited, err := s.query(t.Context(), `max by (alertname) (count_over_time(ALERTS{alertstate="pending"}`+back+`))`)
	if err != nil {
		t.Fatal(err)
	}
	pending := []string{}
	for _, alert := range waited {
		pending = append(pending, fmt.Sprintf("%s for %v", alert.Metric["alertname"], time.Duration(alert.number())*scrapeEvery))
	}
	t.Logf("figure alerts: none fired in %v with %d rounds of a start, two migrations, a snapshot, a drain and an end; these waited: %q", since, rounds, pending)
}
