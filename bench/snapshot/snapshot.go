// Package snapshot measures the time and the API requests of a snapshot of a stopped VM with two disks, interleaved
// in one run with bare VolumeSnapshots of the same disks. All snapshots of the run stay, a hundred of one VM, and
// the middle one is restored to a new VM. Then the VM is started. Package snapshot measures how long its guest is
// quiesced for a snapshot, with and without the guest agent, compared with the driver's time.
//
// In each round a pod writes the round's number to both disks, which shows the content of each snapshot. It must not
// test whether snapshots are correct.
package snapshot

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	count int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.count, "snapshot-count", 100, "snapshot: how many snapshots of one VM are made; the one in the middle is restored")
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	s := &setting{cluster: c, namespace: ns}
	vm := cluster.VM(cluster.VMI(s.namespace, vmName))
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	for _, name := range disks {
		if err := s.cluster.Client.Create(ctx, cluster.BlockClaim(s.namespace, name)); err != nil {
			return fmt.Errorf("making the claim %s: %w", name, err)
		}
		cluster.AddDisk(vm, name)
	}
	if err := s.cluster.Client.Create(ctx, vm); err != nil {
		return fmt.Errorf("making the VM: %w", err)
	}
	if err := s.run(ctx, s.pod("writer", disks...)); err != nil {
		return err
	}
	began := time.Now()
	for i := range o.count {
		t := &round{setting: s, number: i + 1}
		if err := t.run(ctx); err != nil {
			return fmt.Errorf("in round %d: %w", t.number, err)
		}
		r.Add("snapshot.ready_s", "s", t.ready.Seconds())
		r.Add("snapshot.bare_s", "s", t.bare.Seconds())
		r.Add("snapshot.ready_minus_bare_s", "s", (t.ready - t.bare).Seconds())
		r.Logf("%d: bare VolumeSnapshots %.2f s, snapshot %.2f s", t.number, t.bare.Seconds(), t.ready.Seconds())
	}
	r.Logf("%d snapshots of one VM, with what they are compared with: %v", o.count, time.Since(began).Round(time.Second))
	if err := s.restore(ctx, r, (o.count+1)/2); err != nil {
		return err
	}
	if err := s.countWrites(ctx, r, "snapshot", began, o.count); err != nil {
		return err
	}
	return s.live(ctx, r, o.count+1)
}

// countWrites adds Drydock's requests per snapshot. The namespace has no other activity since then but one restore,
// whose objects are distinguishable. The name begins the figures' names.
func (s *setting) countWrites(ctx context.Context, r *report.Report, name string, began time.Time, count int) error {
	if err := cluster.Wait(ctx, cluster.Settle); err != nil {
		return err
	}
	requests, err := s.cluster.RequestsSince(ctx, began)
	if err != nil {
		return err
	}
	requests = audit.Of(requests, func(q audit.Request) bool { return q.Namespace == s.namespace && ofSnapshots(q) })
	r.Add(name+".writes", "requests", float64(audit.Count(requests, audit.Write))/float64(count))
	r.Add(name+".reads", "requests", float64(audit.Count(requests, audit.Read)+audit.Count(requests, audit.List))/float64(count))
	for _, line := range audit.Sums(requests) {
		r.Logf("%s", line)
	}
	return nil
}

// Requests that virt-api passes on to the guest's node store nothing.
func ofSnapshots(q audit.Request) bool {
	return q.Resource != "virtualmachineinstances/quiesce" && q.Resource != "virtualmachineinstances/release" && !strings.HasPrefix(q.Resource, "virtualmachinerestores") && q.Resource != "persistentvolumeclaims" && q.Name != restored &&
		q.Name != restoreName && (q.Resource != "virtualmachines" || q.Verb != "create")
}

type round struct {
	*setting
	number int

	bare, ready time.Duration
	// cut is the time until all bare VolumeSnapshots were taken.
	cut time.Duration
}

func (t *round) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	_, err := t.exec(ctx, "writer", fmt.Sprintf("for d in one two; do echo %d | dd of=/$d conv=notrunc,fsync || exit; done", t.number))
	if err != nil {
		return err
	}
	return interleave.Run(ctx, t.number, t.cutBare, t.snapshot)
}

func (t *round) snapshot(ctx context.Context) error {
	s := &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: nameOf(t.number)},
		Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: vmReference(vmName)},
	}
	var failure error
	began, ended, err := t.cluster.CreateAndAwait(ctx, s, &snapshotv1.VirtualMachineSnapshotList{}, func(o client.Object) bool {
		now, ok := o.(*snapshotv1.VirtualMachineSnapshot)
		if !ok || now.Status == nil {
			return false
		}
		if now.Status.Phase == snapshotv1.Failed {
			failure = fmt.Errorf("the snapshot %s has failed: %s", o.GetName(), *now.Status.Error.Message)
		}
		return failure != nil || now.Status.ReadyToUse != nil && *now.Status.ReadyToUse
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("making a snapshot: %w", err)
	}
	t.ready = ended.Sub(began)
	return nil
}

func (t *round) cutBare(ctx context.Context) error {
	cut, ready, err := t.timeBare(ctx, t.number)
	if err != nil {
		return fmt.Errorf("making the bare VolumeSnapshots: %w", err)
	}
	t.cut, t.bare = cut, ready
	return nil
}

// restore also checks the content of the disks.
func (s *setting) restore(ctx context.Context, r *report.Report, number int) error {
	of := &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: restoreName},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target: vmReference(restored), VirtualMachineSnapshotName: nameOf(number),
			VolumeRestorePolicy: new(snapshotv1.VolumeRestorePolicyPrefixTargetName),
		},
	}
	began, ended, err := s.cluster.CreateAndAwait(ctx, of, &snapshotv1.VirtualMachineRestoreList{}, func(o client.Object) bool {
		now, ok := o.(*snapshotv1.VirtualMachineRestore)
		return ok && now.Status != nil && now.Status.Complete != nil && *now.Status.Complete
	})
	if err != nil {
		return fmt.Errorf("restoring snapshot %d: %w", number, err)
	}
	r.Add("snapshot.restore_s", "s", ended.Sub(began).Seconds())
	pod := s.pod("reader", restored+"-one", restored+"-two")
	if err := s.run(ctx, pod); err != nil {
		return err
	}
	got, err := s.exec(ctx, pod.Name, "head -qn 1 /one /two")
	if want := strings.Repeat(strconv.Itoa(number)+"\n", 2); err != nil || got != want {
		return fmt.Errorf("the disks that were restored from snapshot %d say %q, want %q: %w", number, got, want, err)
	}
	r.Logf("snapshot %d restored in %.2f s, and its disks are its own", number, ended.Sub(began).Seconds())
	return nil
}

func nameOf(number int) string { return "s" + strconv.Itoa(number) }

func vmReference(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: new(v1.GroupVersion.Group), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: name}
}
