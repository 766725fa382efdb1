package snapshot

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
)

const liveRounds = 10

type way struct {
	// name begins the figures' names.
	name       string
	indication snapshotv1.Indication
}

var (
	frozen  = way{"snapshot.frozen", snapshotv1.VMSnapshotGuestAgentIndication}
	stopped = way{"snapshot.stopped", snapshotv1.VMSnapshotNoGuestAgentIndication}
)

// live measures how long a running guest is quiesced for a snapshot, compared with the driver's time for the
// VolumeSnapshots of that snapshot, and for bare ones of the same disks. It measures first with a freeze by the
// agent, then stopped without an agent.
func (s *setting) live(ctx context.Context, r *report.Report, from int) error {
	// The pods with the VM's disks go first.
	for _, name := range []string{"writer", "reader"} {
		if err := s.cluster.DeleteAndAwait(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}); err != nil {
			return err
		}
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: vmName}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runStrategy":"Always"}}`))
	if err := s.cluster.Client.Patch(ctx, vm, patch); err != nil {
		return fmt.Errorf("starting the VM: %w", err)
	}
	if err := s.cluster.AwaitAgents(ctx, s.namespace); err != nil {
		return err
	}
	if err := s.inGuest(ctx, "for d in /dev/vdb /dev/vdc; do mkfs.ext4 -q -F -b 1024 $d && mkdir /mnt/$(basename $d) && mount -t ext4 $d /mnt/$(basename $d) || break; done; "+
		"[ $(mount | grep -c ext4) = 2 ]"); err != nil {
		return err
	}
	if err := s.hold(ctx, r, frozen, from); err != nil {
		return err
	}
	if err := s.inGuest(ctx, "mv /usr/sbin/qemu-ga /tmp && killall qemu-ga; while pidof qemu-ga >/dev/null; do usleep 50000; done"); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, "the status to have no guest agent", func(ctx context.Context) (bool, error) {
		var vmi v1.VirtualMachineInstance
		err := s.cluster.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: vmName}, &vmi)
		return !slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
			return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue
		}), err
	}); err != nil {
		return err
	}
	return s.hold(ctx, r, stopped, from+liveRounds)
}

// hold measures one way, once all writes for earlier steps are done.
func (s *setting) hold(ctx context.Context, r *report.Report, how way, from int) error {
	if err := cluster.Wait(ctx, cluster.Settle); err != nil {
		return err
	}
	began := time.Now()
	for i := range liveRounds {
		t := &liveRound{round: round{setting: s, number: from + i}, how: how}
		if err := interleave.Run(ctx, t.number, t.cutBare, t.run); err != nil {
			return fmt.Errorf("in round %d with a guest that runs: %w", t.number, err)
		}
		r.Add(how.name+".held_s", "s", t.held.Seconds())
		r.Add(how.name+".cut_s", "s", t.driver.Seconds())
		r.Add(how.name+".bare_cut_s", "s", t.cut.Seconds())
		r.Add(how.name+".held_minus_cut_s", "s", (t.held - t.driver).Seconds())
		r.Logf("%d: bare cuts %.3f s; those of the snapshot %.3f s, the guest was held for %.2f s", t.number, t.cut.Seconds(), t.driver.Seconds(), t.held.Seconds())
	}
	return s.countWrites(ctx, r, how.name, began, liveRounds)
}

func (s *setting) inGuest(ctx context.Context, command string) error {
	conn, err := s.cluster.Console(ctx, s.namespace, vmName)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	shell, err := cluster.Login(ctx, conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	if out, code, err := shell.Run(ctx, command); err != nil || code != 0 {
		return fmt.Errorf("running %q in the guest: exit code %d, %q: %w", command, code, out, err)
	}
	return nil
}

type liveRound struct {
	round
	how way
	// held is how long the guest was quiesced, and driver the driver's part of it.
	held, driver time.Duration
}

func (t *liveRound) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	took, err := t.watchCuts(ctx)
	if err != nil {
		return err
	}
	if err := t.snapshot(ctx); err != nil {
		return err
	}
	if t.driver, err = took(); err != nil {
		return err
	}
	t.held, err = t.saysHeld(ctx)
	return err
}

// The time lasts from the first VolumeSnapshot of the next snapshot until all are taken.
func (t *liveRound) watchCuts(ctx context.Context) (func() (time.Duration, error), error) {
	before := volumeSnapshots()
	if err := t.cluster.Client.List(ctx, before, client.InNamespace(t.namespace)); err != nil {
		return nil, fmt.Errorf("listing the VolumeSnapshots: %w", err)
	}
	earlier, taken := map[string]bool{}, map[string]bool{}
	for i := range before.Items {
		earlier[before.Items[i].GetName()] = true
	}
	var first, last time.Time
	done, err := t.cluster.Watch(ctx, volumeSnapshots(), t.namespace, nil, func(_ watch.EventType, o client.Object) bool {
		cut, ok := o.(*unstructured.Unstructured)
		if !ok || earlier[o.GetName()] {
			return false
		}
		if first.IsZero() {
			first = time.Now()
		}
		if at, _, _ := unstructured.NestedString(cut.Object, "status", "creationTime"); at != "" && !taken[cut.GetName()] {
			taken[cut.GetName()], last = true, time.Now()
		}
		return len(taken) == len(disks)
	})
	return func() (time.Duration, error) {
		if err := <-done; err != nil {
			return 0, err
		}
		return last.Sub(first), nil
	}, err
}

// stood finds the quiesced time in the snapshot's status.
var stood = regexp.MustCompile(`for ([0-9.]+) s`)

func (t *liveRound) saysHeld(ctx context.Context) (time.Duration, error) {
	var made snapshotv1.VirtualMachineSnapshot
	if err := t.cluster.Client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: nameOf(t.number)}, &made); err != nil {
		return 0, fmt.Errorf("reading the snapshot: %w", err)
	}
	for _, said := range made.Status.SourceIndications {
		if found := stood.FindStringSubmatch(said.Message); found != nil && said.Indication == t.how.indication {
			seconds, err := strconv.ParseFloat(found[1], 64)
			return time.Duration(seconds * float64(time.Second)), err
		}
	}
	return 0, errors.New("the snapshot does not say for how long the guest was held as it was to be")
}
