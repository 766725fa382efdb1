package migration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// made is a migration of the VMI with the same name, made this many seconds after noon.
func made(namespace, name string, seconds int, edits ...func(*v1.VirtualMachineInstanceMigration)) *v1.VirtualMachineInstanceMigration {
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second)),
	}}
	m.Spec.VMIName = name
	for _, e := range edits {
		e(m)
	}
	return m
}

type change = func(*v1.VirtualMachineInstanceMigration)

func of(vmi string) change {
	return func(m *v1.VirtualMachineInstanceMigration) { m.Spec.VMIName = vmi }
}

func phase(p v1.VirtualMachineInstanceMigrationPhase) change {
	return func(m *v1.VirtualMachineInstanceMigration) { m.Status.Phase = p }
}

func priority(p v1.MigrationPriority) change {
	return func(m *v1.VirtualMachineInstanceMigration) { m.Spec.Priority = &p }
}

// over ends a migration this many seconds after noon.
func over(p v1.VirtualMachineInstanceMigrationPhase, seconds int) change {
	return func(m *v1.VirtualMachineInstanceMigration) {
		m.Status.Phase = p
		m.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
			{Phase: v1.MigrationPending, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
			{Phase: p, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))},
		}
	}
}

// noted adds the annotation of Drydock's own migrations, which any user can write.
func noted(annotation string) change {
	return func(m *v1.VirtualMachineInstanceMigration) { m.Annotations = map[string]string{annotation: ""} }
}

// drydocks makes a migration one of Drydock's own.
func drydocks(annotation string) change {
	return func(m *v1.VirtualMachineInstanceMigration) {
		noted(annotation)(m)
		priority(v1.PrioritySystemMaintenance)(m)
	}
}

func gone(m *v1.VirtualMachineInstanceMigration) { m.DeletionTimestamp = new(metav1.NewTime(noon)) }

// on has the node of each VMI that is not on node1; "" means that there is none.
type on map[string]string

// failuresInARow returns this many failed migrations of the VMI "vm" for a drain, the last a minute after noon.
func failuresInARow(n int) []*v1.VirtualMachineInstanceMigration {
	all := make([]*v1.VirtualMachineInstanceMigration, n)
	for i := range all {
		all[i] = made("a", strconv.Itoa(i), 0, of("vm"), drydocks(v1.EvacuationMigrationAnnotation), over(v1.MigrationFailed, 60-i))
	}
	return all
}

func cluster(nodes on, atOnce, perNode uint32, migrations ...*v1.VirtualMachineInstanceMigration) Cluster {
	return Cluster{
		Migrations: migrations,
		VMI: func(name types.NamespacedName) *v1.VirtualMachineInstance {
			node, known := nodes[name.Name]
			switch {
			case !known:
				node = "node1"
			case node == "":
				return nil
			}
			vmi := &v1.VirtualMachineInstance{}
			vmi.Status.Phase, vmi.Status.NodeName = v1.Running, node
			if from, moved := nodes["from "+name.Name]; moved {
				vmi.Status.MigrationState = &state{MigrationUID: types.UID(name.Namespace + "/" + name.Name), SourceNode: from}
			}
			if node == "down" {
				vmi.Status.Phase = v1.Failed
			}
			return vmi
		},
		Configuration: v1.MigrationConfiguration{ParallelMigrationsPerCluster: &atOnce, ParallelOutboundMigrationsPerNode: &perNode},
		Now:           noon.Add(time.Minute),
	}
}

func TestChoose(t *testing.T) {
	const many = 100
	running, evacuation, update := phase(v1.MigrationRunning), drydocks(v1.EvacuationMigrationAnnotation), drydocks(v1.WorkloadUpdateMigrationAnnotation)
	for name, c := range map[string]struct {
		c    Cluster
		want map[types.UID]string
	}{
		"none":                             {cluster(nil, many, many), map[types.UID]string{}},
		"one":                              {cluster(nil, many, many, made("a", "1", 0)), map[types.UID]string{"a/1": "may"}},
		"the last that may in the cluster": {cluster(nil, 2, many, made("a", "1", 0, running), made("a", "2", 0)), map[types.UID]string{"a/2": "may"}},
		"as many as may in the cluster": {cluster(nil, 2, many, made("a", "1", 0, running), made("a", "2", 0, phase(v1.MigrationScheduling)), made("a", "3", 0, phase(v1.MigrationPending))),
			map[types.UID]string{"a/3": "ClusterLimit"}},
		"the last that may from a node": {cluster(nil, many, 2, made("a", "1", 0, running), made("a", "2", 0)), map[types.UID]string{"a/2": "may"}},
		"as many as may from a node": {cluster(nil, many, 2, made("a", "1", 0, running), made("a", "2", 0, running), made("a", "3", 0)),
			map[types.UID]string{"a/3": "NodeLimit"}},
		"another node has room": {cluster(on{"2": "node2"}, many, 1, made("a", "1", 0), made("a", "3", 1), made("a", "2", 2)),
			map[types.UID]string{"a/1": "may", "a/3": "NodeLimit", "a/2": "may"}},
		"who waits for its node takes no place in the cluster": {cluster(on{"3": "node2"}, 2, 1, made("a", "1", 0), made("a", "2", 1), made("a", "3", 2), made("a", "4", 3)),
			map[types.UID]string{"a/1": "may", "a/2": "NodeLimit", "a/3": "may", "a/4": "ClusterLimit"}},
		"a guest that has arrived counts where it came from": {cluster(on{"1": "node2", "from 1": "node1"}, many, 1, made("a", "1", 0, running), made("a", "2", 0)),
			map[types.UID]string{"a/2": "NodeLimit"}},
		"one that runs of a VMI that is gone leaves no node": {cluster(on{"1": ""}, many, 1, made("a", "1", 0, running), made("a", "2", 0)), map[types.UID]string{"a/2": "may"}},
		"but it counts":                     {cluster(on{"1": ""}, 1, many, made("a", "1", 0, running), made("a", "2", 0)), map[types.UID]string{"a/2": "ClusterLimit"}},
		"those that have ended don't count": {cluster(nil, 1, many, made("a", "1", 0, over(v1.MigrationSucceeded, 0)), made("a", "2", 0, over(v1.MigrationFailed, 0)), made("a", "3", 0)), map[types.UID]string{"a/3": "may"}},
		"the oldest":                        {cluster(nil, 1, many, made("a", "1", 2), made("a", "2", 1), made("a", "3", 3)), map[types.UID]string{"a/1": "ClusterLimit", "a/2": "may", "a/3": "ClusterLimit"}},
		"of the same second the first in the alphabet": {cluster(nil, 1, many, made("b", "1", 0), made("a", "2", 0), made("a", "1", 0)),
			map[types.UID]string{"a/1": "may", "a/2": "ClusterLimit", "b/1": "ClusterLimit"}},
		"the namespace of which the fewest run": {cluster(nil, 4, many, made("a", "1", 0, running), made("a", "2", 0, running), made("b", "3", 0, running), made("a", "4", 0), made("b", "5", 1)),
			map[types.UID]string{"a/4": "ClusterLimit", "b/5": "may"}},
		"namespaces take turns": {cluster(nil, 4, many, made("a", "1", 0), made("a", "2", 1), made("a", "3", 2), made("a", "4", 3), made("b", "1", 9), made("c", "1", 9)),
			map[types.UID]string{"a/1": "may", "a/2": "may", "a/3": "ClusterLimit", "a/4": "ClusterLimit", "b/1": "may", "c/1": "may"}},
		"the urgent first": {cluster(nil, 1, many, made("a", "1", 0), made("a", "2", 1, priority(v1.PrioritySystemCritical)), made("a", "3", 2)),
			map[types.UID]string{"a/1": "ClusterLimit", "a/2": "may", "a/3": "ClusterLimit"}},
		"urgency goes before turns": {cluster(nil, 2, many, made("a", "1", 0, running), made("a", "2", 1, priority(v1.PrioritySystemCritical)), made("b", "3", 0)),
			map[types.UID]string{"a/2": "may", "b/3": "ClusterLimit"}},
		"maintenance last": {cluster(nil, 1, many, made("a", "1", 0, priority(v1.PrioritySystemMaintenance)), made("a", "2", 1)),
			map[types.UID]string{"a/1": "ClusterLimit", "a/2": "may"}},
		"who says nothing is a user": {cluster(nil, 1, many, made("a", "1", 1, priority(v1.PriorityUserTriggered)), made("a", "2", 0)),
			map[types.UID]string{"a/1": "ClusterLimit", "a/2": "may"}},
		"and a user is as who says nothing": {cluster(nil, 1, many, made("a", "1", 0, priority(v1.PriorityUserTriggered)), made("a", "2", 1)),
			map[types.UID]string{"a/1": "may", "a/2": "ClusterLimit"}},
		"one of each VMI":                 {cluster(nil, many, many, made("a", "1", 0, of("vm")), made("a", "2", 1, of("vm"))), map[types.UID]string{"a/1": "may", "a/2": "AnotherMigration"}},
		"one of a VMI that migrates":      {cluster(nil, many, many, made("a", "1", 0, of("vm"), running), made("a", "2", 1, of("vm"))), map[types.UID]string{"a/2": "AnotherMigration"}},
		"VMIs of one name in two places":  {cluster(nil, many, many, made("a", "1", 0, of("vm"), running), made("b", "2", 1, of("vm"))), map[types.UID]string{"b/2": "may"}},
		"one that is canceled":            {cluster(nil, many, many, made("a", "1", 0, gone)), map[types.UID]string{}},
		"one whose VMI is gone":           {cluster(on{"1": ""}, many, many, made("a", "1", 0)), map[types.UID]string{}},
		"one that can't be done":          {cluster(on{"1": "down"}, 1, many, made("a", "1", 0), made("a", "2", 1)), map[types.UID]string{"a/2": "may"}},
		"a user's after failures":         {cluster(nil, many, many, made("a", "1", 0, of("vm"), evacuation, over(v1.MigrationFailed, 60)), made("a", "2", 0, of("vm"))), map[types.UID]string{"a/2": "may"}},
		"a drain's after a user's failed": {cluster(nil, many, many, made("a", "1", 0, of("vm"), over(v1.MigrationFailed, 60)), made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "may"}},
		"a drain's after one of a user's failed that said it was a drain's": {cluster(nil, many, many, made("a", "1", 0, of("vm"), noted(v1.EvacuationMigrationAnnotation), over(v1.MigrationFailed, 60)),
			made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "may"}},
		"a drain's after one of a user's failed that said it was an update's": {cluster(nil, many, many, made("a", "1", 0, of("vm"), noted(v1.WorkloadUpdateMigrationAnnotation), over(v1.MigrationFailed, 60)),
			made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "may"}},
		"a drain's after one failure": {cluster(nil, many, many, made("a", "1", 0, of("vm"), evacuation, over(v1.MigrationFailed, 45)), made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "BackOff 5s"}},
		"when it has waited":          {cluster(nil, many, many, made("a", "1", 0, of("vm"), evacuation, over(v1.MigrationFailed, 40)), made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "may"}},
		"an update's after a drain's two": {cluster(nil, many, many, made("a", "1", 0, of("vm"), evacuation, over(v1.MigrationFailed, 60)), made("a", "2", 0, of("vm"), evacuation, over(v1.MigrationFailed, 20)), made("a", "3", 0, of("vm"), update)),
			map[types.UID]string{"a/3": "BackOff 40s"}},
		"a drain's after many failures":      {cluster(nil, many, many, append(failuresInARow(9), made("a", "next", 0, of("vm"), evacuation))...), map[types.UID]string{"a/next": "BackOff 5m0s"}},
		"a drain's after an update's failed": {cluster(nil, many, many, made("a", "1", 0, of("vm"), update, over(v1.MigrationFailed, 60)), made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "BackOff 20s"}},
		"another VMI's failures":             {cluster(nil, many, many, made("a", "1", 0, of("other"), evacuation, over(v1.MigrationFailed, 60)), made("a", "2", 0, of("vm"), evacuation)), map[types.UID]string{"a/2": "may"}},
		"a success in between": {cluster(nil, many, many, made("a", "1", 0, of("vm"), evacuation, over(v1.MigrationFailed, 20)), made("a", "2", 0, of("vm"), over(v1.MigrationSucceeded, 50)), made("a", "3", 0, of("vm"), over(v1.MigrationSucceeded, 10)), made("a", "4", 0, of("vm"), evacuation)),
			map[types.UID]string{"a/4": "may"}},
		"a failure after a success": {cluster(nil, many, many, made("a", "1", 0, of("vm"), over(v1.MigrationSucceeded, 20)), made("a", "2", 0, of("vm"), evacuation, over(v1.MigrationFailed, 50)), made("a", "3", 0, of("vm"), evacuation, over(v1.MigrationFailed, 10)), made("a", "4", 0, of("vm"), evacuation)),
			map[types.UID]string{"a/4": "BackOff 10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[types.UID]string{}
			for uid, choice := range Choose(c.c) {
				got[uid] = choice.Reason
				if choice.May {
					got[uid] = "may" + choice.Reason + choice.Message
				}
				if choice.After != 0 {
					got[uid] += fmt.Sprintf(" %v", choice.After)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
		})
	}
}

func TestWhoWaitsIsToldForWhat(t *testing.T) {
	evacuation := drydocks(v1.EvacuationMigrationAnnotation)
	c := cluster(on{"2": "node2", "3": "node3"}, 3, 1, made("a", "1", 0, phase(v1.MigrationRunning)), made("a", "5", 1), made("a", "2", 2),
		made("a", "0", 0, of("6"), evacuation, over(v1.MigrationFailed, 55)), made("a", "6", 1, evacuation), made("a", "7", 1, of("2")), made("a", "3", 3), made("a", "4", 4))
	want := map[types.UID]Choice{
		"a/2": {Reason: ReasonAnotherMigration, Message: "another migration of the VMI goes first"},
		"a/3": {May: true},
		"a/4": {Reason: ReasonClusterLimit, Message: "as many migrations run as the KubeVirt object allows at a time (parallelMigrationsPerCluster: 3)"},
		"a/5": {Reason: ReasonNodeLimit, Message: "as many migrations leave node node1 as the KubeVirt object allows at a time (parallelOutboundMigrationsPerNode: 1)"},
		"a/6": {Reason: ReasonBackOff, After: 15 * time.Second, Message: "1 migrations of the VMI have failed since one has succeeded, the last one at 2026-05-01T12:00:55Z"},
		"a/7": {May: true},
	}
	if diff := cmp.Diff(want, Choose(c)); diff != "" {
		t.Errorf("want, got:\n%s", diff)
	}
}
