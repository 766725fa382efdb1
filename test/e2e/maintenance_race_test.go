//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	vclient "drydock.dev/drydock/internal/virtctl/client"
)

var (
	// A long run needs more starts than every run can afford: see `make soak`.
	raceStarts = flag.Int64("maintenance.starts", 10, "how many starts of the VM are at least accepted or refused meanwhile")
	raceFor    = flag.Duration("maintenance.for", 12*time.Second, "how long pods, starts and deletions race for one VM's disk")
	raceSeed   = flag.Uint64("maintenance.seed", 0, "what the random moments and deeds come from; 0 for a new one")
)

const (
	// starters are goroutines.
	starters = 3
	// startPause, deedPause and killPause bound the pauses of the goroutines that start the VM, that stop and delete,
	// and that kill. A free VM is started after at most freePause: some of the starts are then quicker than any pod,
	// and some are not.
	startPause, deedPause, killPause, freePause = 100 * time.Millisecond, 1500 * time.Millisecond, 12 * time.Second, time.Second
)

func crowd() int {
	if testing.Short() {
		return 8
	}
	return 20
}

// TestPodsAndGuestsRaceForADisk lets twenty maintenance pods at a time wait for one VM, which is started whenever the
// lock is free for a moment. Meanwhile it is stopped; pods, VMIs and the VM itself are deleted; virt-controller and
// virt-api are killed. Every user of the disk watches for others: a pod opens a lock file beside the disk that nobody
// else may have open, and pods and guests write to the disk's end and check that nobody else does. The kernel's locks,
// read from outside, must show that QEMU has the disk open only while no pod has. Before the race a pod is told to end,
// and ends slowly while the others wait. After it the lock must be free, and the VM must start. -maintenance.starts
// sets how many starts must be accepted or refused at least; `make test` uses fewer, and fewer pods.
// internal/rules/maintenance explores the interleavings; here the kernel tells who has the disk. Not parallel: it kills
// parts that other tests need.
func TestPodsAndGuestsRaceForADisk(t *testing.T) {
	r := newRace(t)
	r.createVM(t)
	r.endsAHolder(t)
	r.crowdIn(t)
	r.run(t)
	figures := r.figures(t)
	r.settles(t)
	r.watched.stop()
	r.starts(t)
	t.Log("figure maintenance: " + figures)
	r.judgesPods(t)
	if !r.raced() {
		t.Error("there was no race: nobody had the disk, or no start was accepted, or none refused")
	}
}

type race struct {
	ns       string
	disk     contested
	watched  *lockWatch
	virt     *vclient.Client
	pulses   *pulses
	seed     uint64
	races    int64
	lasts    time.Duration
	began    time.Time
	pods     atomic.Int64
	accepted atomic.Int64
	refused  atomic.Int64
	other    atomic.Int64
	failed   atomic.Bool
	// halted and gone report whether the VM was last seen halted, and without a guest: see startsAgain. unlocked gets a
	// value when it was both, and unlocked.
	halted, gone atomic.Bool
	unlocked     chan struct{}
}

func newRace(t *testing.T) *race {
	t.Helper()
	virt, err := vclient.New(cluster.config)
	if err != nil {
		t.Fatalf("making a client of the subresources: %v", err)
	}
	ns := newNamespace(t)
	r := &race{ns: ns, disk: newContested(t, ns), virt: virt, seed: *raceSeed, races: *raceStarts, lasts: *raceFor, unlocked: make(chan struct{}, 1)}
	if testing.Short() {
		r.races, r.lasts = min(r.races, 4), min(r.lasts, 4*time.Second)
	}
	if r.seed == 0 {
		r.seed = rand.Uint64()
	}
	t.Logf("the seed is %d (-maintenance.seed)", r.seed)
	r.pulses = feelPulses(t, ns)
	r.watched = watchLocks(t, r.disk)
	return r
}

func (r *race) run(t *testing.T) {
	t.Helper()
	r.began = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var all, watching sync.WaitGroup
	watching.Go(func() { r.watchLock(ctx) })
	defer watching.Wait()
	defer cancel()
	type side struct {
		name string
		do   func(*testing.T, *rand.Rand)
	}
	sides := append([]side{{"pods", r.makesPods}, {"deeds", r.stopsAndDeletes}, {"kills", r.kills}, {"judge", r.judges}},
		slices.Repeat([]side{{"starts", r.startsAgain}}, starters)...)
	for i, side := range sides {
		random := rand.New(rand.NewPCG(r.seed, uint64(i)))
		all.Go(func() {
			t.Run(side.name, func(t *testing.T) {
				defer func() { r.failed.Store(r.failed.Load() || t.Failed()) }()
				side.do(t, random)
			})
		})
	}
	all.Wait()
}

// goesOn reports whether the race must go on. A short one goes on until pods and guests both had the disk: a guest may
// be stopped before it gets there.
func (r *race) goesOn() bool {
	took := time.Since(r.began)
	return !r.failed.Load() && (took < r.lasts || r.accepted.Load()+r.refused.Load() < r.races || !r.raced() && took < patience)
}

// judges ends the race as soon as a pod reports another user of the disk, and logs the progress of a long race every
// minute.
func (r *race) judges(t *testing.T, _ *rand.Rand) {
	told := r.began
	for ; r.goesOn(); time.Sleep(time.Second) {
		r.judgesPods(t)
		if t.Failed() {
			return
		}
		if time.Since(told) >= time.Minute {
			told = time.Now()
			t.Log(r.figures(t))
		}
	}
}

func (r *race) judgesPods(t *testing.T) {
	t.Helper()
	if wrong := r.disk.read(t, "wrong"); wrong != "" {
		t.Errorf("maintenance pods say of the disk:\n%s", wrong)
	}
}

// figures summarizes the race so far.
func (r *race) figures(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("in %v %d starts were accepted, %d refused, %d met something else; %d pods were made, of which %d had the disk; from outside %d pods and %d guests were seen to have it",
		time.Since(r.began).Round(time.Second), r.accepted.Load(), r.refused.Load(), r.other.Load(), r.pods.Load(), r.disk.holders(t), r.watched.pods.Load(), r.watched.guests.Load())
}

// raced reports whether pods and guests both had the disk, and whether starts were accepted and refused.
func (r *race) raced() bool {
	return r.watched.pods.Load() > 0 && r.watched.guests.Load() > 0 && r.refused.Load() > 0 && r.accepted.Load() > 0
}

// The guest has a pulse and a lease on the disk.
func (r *race) createVM(t *testing.T) {
	t.Helper()
	vmi := newVMI(r.ns, "vm")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(3))
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	vm := newVM(vmi, v1.RunStrategyHalted)
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = "data"
	addClaimDisk(vm, "data", v1.VolumeSource{PersistentVolumeClaim: source})
	vm = withPulse(vm, "vdb")
	eventually(t, "the VM to be created", func(ctx context.Context) error { return cluster.client.Create(ctx, vm.DeepCopy()) })
}

// crowdIn creates pods in parallel up to the size of the crowd. While virt-api is down, or the VM does not exist, there
// are fewer.
func (r *race) crowdIn(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for range crowd() - len(r.waitingOrHolding(t)) {
		all.Go(func() {
			pod := r.newPod(r.pods.Add(1))
			_ = cluster.client.Create(t.Context(), pod) // a refused pod is missing in the next list, and created then
		})
	}
	all.Wait()
}

// endsAHolder deletes the pod that has the disk, while a crowd waits for it. The pod runs on until its grace period is
// over, and must keep the lock until then. In the race this happens only by chance: pods that run for a second end
// before another starts.
func (r *race) endsAHolder(t *testing.T) {
	t.Helper()
	holder := r.newPod(0)
	holder.Spec.TerminationGracePeriodSeconds = new(int64(8))
	c := &holder.Spec.Containers[0]
	c.Command[len(c.Command)-1] = fmt.Sprintf(observer, holder.Name, 1000, 1)
	create(t, holder)
	eventually(t, "a pod to have the disk", func(context.Context) error {
		if r.disk.holders(t) == 0 {
			return errors.New("none has")
		}
		return nil
	})
	r.crowdIn(t)
	deletion(t, holder)()
	eventually(t, "the pod that was told to end to do so", func(ctx context.Context) error {
		vm, pod := &v1.VirtualMachine{}, &corev1.Pod{}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: "vm"}, vm); err != nil {
			return err
		}
		err := cluster.client.Get(ctx, client.ObjectKeyFromObject(holder), pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && podstatus.Terminal(pod):
			return nil
		case err == nil && !lock.HeldBy(vm, pod):
			t.Fatalf("the VM is not locked any more for a pod that runs: it has the labels %v, the pod is %s", vm.Labels, pod.Status.Phase)
		}
		return cmp.Or(err, errors.New("it runs"))
	})
}

// The pod uses the disk for up to two seconds, and checks that nobody else does.
func (r *race) newPod(number int64) *corev1.Pod {
	pod := maintainer(r.ns, fmt.Sprintf("pod-%d", number), "")
	pod.Spec.TerminationGracePeriodSeconds = new(number % 3)
	c := &pod.Spec.Containers[0]
	c.VolumeDevices, c.VolumeMounts = nil, []corev1.VolumeMount{{Name: "data", MountPath: "/disk"}}
	c.Command = []string{"busybox", "sh", "-c", fmt.Sprintf(observer, pod.Name, 1+number%12, (claimSize-leaseBytes)/4096)}
	return pod
}

// leaseBytes is the size of the lease at the end of a disk of a guest with a pulse (test/guest/guestd).
const leaseBytes = 8 * 4096

// observer is the script of a pod. Its lock on the file ends with its processes, whatever ends them.
const observer = `
me=%s turns=%d block=%d
wrong() { echo "$me: $*" >> /disk/wrong; exit 1; }
exec 9>> /disk/lock
flock -n 9 || wrong "another pod has the disk"
echo "$me" >> /disk/holders
i=0
while [ $i -lt $turns ]; do
  i=$((i + 1))
  echo "$me $i" | dd of=/disk/disk.img bs=4096 seek=$block conv=notrunc,sync,fsync 2>/dev/null || wrong "it can't write to the disk"
  before=$(dd if=/disk/disk.img bs=4096 skip=$block 2>/dev/null | md5sum)
  usleep 150000
  after=$(dd if=/disk/disk.img bs=4096 skip=$block 2>/dev/null | md5sum)
  [ "$before" = "$after" ] || wrong "somebody else has written to the disk in turn $i"
done
`

// makesPods creates a crowd again and again.
func (r *race) makesPods(t *testing.T, random *rand.Rand) {
	for r.goesOn() {
		time.Sleep(moment(random, time.Second))
		if len(r.waitingOrHolding(t)) > random.IntN(crowd()/2) {
			continue
		}
		r.crowdIn(t)
		for _, pod := range r.maintainers(t) {
			if lock.Ended(&pod) {
				deleteObject(t, &pod)
			}
		}
	}
}

func (r *race) maintainers(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace(r.ns), client.HasLabels{layout.MaintenanceForLabel}); err != nil {
		t.Fatalf("listing the maintenance pods: %v", err)
	}
	return pods.Items
}

func (r *race) waitingOrHolding(t *testing.T) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(r.maintainers(t), func(p corev1.Pod) bool { return lock.Ended(&p) })
}

// watchLock signals whenever the VM is seen halted, without a guest and unlocked.
func (r *race) watchLock(ctx context.Context) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "vm"}}
	// seen accepts nothing, so the watch ends with the context.
	_, _ = watchUntil(ctx, vm, &v1.VirtualMachineList{}, func(vm *v1.VirtualMachine) bool {
		strategy, err := vm.RunStrategy()
		r.halted.Store(err == nil && strategy == v1.RunStrategyHalted)
		r.gone.Store(!vm.Status.Created)
		if _, locked := lock.Of(vm); !locked && r.halted.Load() && r.gone.Load() {
			select {
			case r.unlocked <- struct{}{}:
			default:
			}
		}
		return false
	})
}

// startsAgain starts the VM, mostly right after it was unlocked. It never starts a running VM, and seldom a stopping
// one, whose guest would come back before any pod had its chance.
func (r *race) startsAgain(t *testing.T, random *rand.Rand) {
	for r.goesOn() {
		select {
		case <-r.unlocked:
			time.Sleep(moment(random, freePause))
		case <-time.After(moment(random, startPause)):
			if !r.halted.Load() || !r.gone.Load() && random.IntN(500) > 0 {
				continue
			}
		}
		var err error
		if random.IntN(4) == 0 {
			err = r.strategy(t.Context(), v1.RunStrategyAlways)
		} else {
			err = r.virt.Put(t.Context(), vclient.Ref{Resource: vclient.VirtualMachines, Namespace: r.ns, Name: "vm"}, "start", &v1.StartOptions{})
		}
		switch {
		case err == nil:
			r.accepted.Add(1)
		case strings.Contains(err.Error(), "Failed to start vm as it is in maintenance mode"):
			r.refused.Add(1)
		default:
			r.other.Add(1) // virt-api or the VM is gone, or another goroutine has started it
		}
	}
}

func (r *race) strategy(ctx context.Context, strategy v1.VirtualMachineRunStrategy) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"runStrategy":%q}}`, strategy))
	return cluster.client.Patch(ctx, &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "vm"}}, patch)
}

// stopsAndDeletes does one of these at random moments. It skips a deed when the API does not answer.
func (r *race) stopsAndDeletes(t *testing.T, random *rand.Rand) {
	deeds := slices.Concat(slices.Repeat([]func(*testing.T, *rand.Rand){
		func(t *testing.T, _ *rand.Rand) { _ = r.strategy(t.Context(), v1.RunStrategyHalted) },
		func(t *testing.T, _ *rand.Rand) {
			_ = r.virt.Put(t.Context(), vclient.Ref{Resource: vclient.VirtualMachines, Namespace: r.ns, Name: "vm"}, "stop", &v1.StopOptions{})
		},
	}, 3), []func(*testing.T, *rand.Rand){
		r.deletesAPod(), r.deletesAPod(client.GracePeriodSeconds(0)), r.deletesTheHolder(), r.deletesTheHolder(client.GracePeriodSeconds(0)),
		func(t *testing.T, _ *rand.Rand) { deleteObject(t, objectFor(r.ns, "vm")) }, r.deletesTheGuestsPod, r.deletesTheVM,
	})
	for r.goesOn() {
		pause := deedPause
		if time.Since(r.began) > r.lasts && !r.raced() {
			pause *= 10 // on a busy machine a guest starts slower than this goroutine lets it live
		}
		time.Sleep(moment(random, pause))
		deeds[random.IntN(len(deeds))](t, random)
	}
}

// deletesAPod deletes a random maintenance pod.
func (r *race) deletesAPod(options ...client.DeleteOption) func(*testing.T, *rand.Rand) {
	return func(t *testing.T, random *rand.Rand) {
		if pods := r.waitingOrHolding(t); len(pods) > 0 {
			deletion(t, &pods[random.IntN(len(pods))], options...)()
		}
	}
}

func (r *race) deletesTheHolder(options ...client.DeleteOption) func(*testing.T, *rand.Rand) {
	return func(t *testing.T, _ *rand.Rand) {
		for _, pod := range r.maintainers(t) {
			if lock.MayWrite(&pod) {
				deletion(t, &pod, options...)()
			}
		}
	}
}

// deletesTheGuestsPod deletes it by force.
func (r *race) deletesTheGuestsPod(t *testing.T, _ *rand.Rand) {
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace(r.ns), client.MatchingLabels{v1.AppLabel: layout.LauncherApp}); err != nil {
		t.Fatalf("listing the launcher pods: %v", err)
	}
	for i := range pods.Items {
		deletion(t, &pods.Items[i], client.GracePeriodSeconds(0))()
	}
}

// deletesTheVM deletes the VM with its waiting pods, and creates another one with the same name.
func (r *race) deletesTheVM(t *testing.T, _ *rand.Rand) {
	deleteObject(t, &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "vm"}})
	r.createVM(t)
}

// kills kills virt-controller and virt-api, and waits until each is back.
func (r *race) kills(t *testing.T, random *rand.Rand) {
	for r.goesOn() {
		time.Sleep(moment(random, killPause))
		if random.IntN(2) == 0 {
			killController(t)
			awaitLeader(t)
			continue
		}
		killAPI(t)
		awaitAPI(t, r.ns)
	}
}

// New pods start at once, as for virt-controller.
func killAPI(t *testing.T) {
	t.Helper()
	for _, pid := range componentPIDs("api")(t) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Errorf("killing virt-api (pid %d): %v", pid, err)
		}
	}
	pods := []client.DeleteAllOfOption{
		client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-api"}, client.GracePeriodSeconds(0),
	}
	if err := cluster.client.DeleteAllOf(t.Context(), &corev1.Pod{}, pods...); err != nil {
		t.Fatalf("deleting virt-api's pods: %v", err)
	}
}

func awaitAPI(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "virt-api", func(ctx context.Context) error {
		return cluster.client.Create(ctx, newVM(newVMI(ns, "asks"), v1.RunStrategyHalted), client.DryRunAll)
	})
}

// settles halts the VM, deletes most waiting pods, and waits until the others have had their turn.
func (r *race) settles(t *testing.T) {
	t.Helper()
	eventually(t, "the VM to be halted", func(ctx context.Context) error { return r.strategy(ctx, v1.RunStrategyHalted) })
	waiting := slices.DeleteFunc(r.waitingOrHolding(t), func(p corev1.Pod) bool { return !lock.Gated(&p) })
	for i := range waiting {
		if i >= 2 {
			deleteObject(t, &waiting[i])
		}
	}
	eventually(t, "all maintenance pods to have ended, and the lock to be free", func(ctx context.Context) error {
		for _, pod := range r.maintainers(t) {
			if !lock.Ended(&pod) || lock.Kept(&pod) {
				return fmt.Errorf("the pod %s has not ended: it is %s, with the finalizers %v and the conditions %+v", pod.Name, pod.Status.Phase, pod.Finalizers, pod.Status.Conditions)
			}
		}
		vm := &v1.VirtualMachine{}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: "vm"}, vm); err != nil {
			return err
		}
		if l, locked := lock.Of(vm); locked || vm.Status.PrintableStatus != v1.VirtualMachineStatusStopped {
			return fmt.Errorf("the VM is %s, with the lock %+v", vm.Status.PrintableStatus, l)
		}
		return nil
	})
}

// starts starts the VM, and waits until its guest reports that it has the disk.
func (r *race) starts(t *testing.T) {
	t.Helper()
	asked := r.pulses.Asked()
	do(t, r.ns, "start", "vm")
	eventually(t, "a pulse of the guest", func(context.Context) error {
		if last := r.pulses.Last("vm"); last.Asked <= asked || last.Beats < 2 {
			return fmt.Errorf("the last was %+v", last)
		}
		return r.pulses.Err()
	})
}

// contested is a claim's folder on this machine, with the disk of the race, the pods' lock file and the pods' notes.
type contested string

func newContested(t *testing.T, ns string) contested {
	t.Helper()
	source := folderWithImage(t, ns, "")
	c := contested(filepath.Join(os.Getenv("DRYDOCK_DIR"), "shared", ns))
	if err := os.WriteFile(c.file("lock"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "disk.img"} {
		if err := os.Chown(c.file(name), layout.QEMUUser, layout.QEMUUser); err != nil {
			t.Fatal(err)
		}
	}
	capacity := corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-data"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: capacity, AccessModes: modes, PersistentVolumeSource: source, ClaimRef: &corev1.ObjectReference{Namespace: ns, Name: "data"},
		},
	}
	create(t, volume)
	t.Cleanup(func() { deleteObject(t, volume) })
	create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(""), AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: capacity},
		},
	})
	return c
}

func (c contested) file(name string) string { return filepath.Join(string(c), name) }

func (c contested) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(c.file(name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func (c contested) holders(t *testing.T) int { return strings.Count(c.read(t, "holders"), "\n") }

type lockWatch struct {
	stop func()
	// pods and guests count how often each was seen to take the disk.
	pods, guests atomic.Int64
}

// A pod and a guest must never have the disk at once. The nodes are namespaces of this machine.
func watchLocks(t *testing.T, disk contested) *lockWatch {
	t.Helper()
	w := &lockWatch{}
	pod, guest := inodeOf(t, disk.file("lock")), inodeOf(t, disk.file("disk.img"))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		overlaps, hadPod, hadGuest := 0, false, false
		for ; ctx.Err() == nil && overlaps < 5; <-tick.C {
			locks, err := os.ReadFile("/proc/locks")
			if err != nil {
				t.Errorf("looking at the kernel's locks: %v", err)
				return
			}
			byPod, byGuest := locked(string(locks), pod, guest)
			if byPod && byGuest {
				overlaps++
				t.Errorf("a pod and a guest have the disk at once, says the kernel:\n%s", locks)
			}
			if byPod && !hadPod {
				w.pods.Add(1)
			}
			if byGuest && !hadGuest {
				w.guests.Add(1)
			}
			hadPod, hadGuest = byPod, byGuest
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		looking.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// writes is the byte of a disk's file that QEMU locks while its guest may write.
const writes = 101

// locked reads from the kernel's list of locks whether a pod has locked its file, and a QEMU the disk.
func locked(list, pod, guest string) (byPod, byGuest bool) {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] == "->" {
			continue // this process only waits for the lock
		}
		first, _ := strconv.Atoi(f[6])
		last, err := strconv.Atoi(f[7])
		byPod = byPod || f[1] == "FLOCK" && f[5] == pod
		byGuest = byGuest || f[1] == "OFDLCK" && f[5] == guest && first <= writes && (err != nil || last >= writes)
	}
	return byPod, byGuest
}

func inodeOf(t *testing.T, path string) string {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatalf("asking for the inode of %s: %v", path, err)
	}
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
}
