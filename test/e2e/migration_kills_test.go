//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/test/pulse"
)

var (
	// A long run needs more strikes than every run can afford: see `make soak`.
	killsFor = flag.Int("migration.kills", 6, "how many strikes interrupt migrations at a random moment")
	trios    = flag.Int("migration.trios", 1, "how many times three guests migrate meanwhile")
	seedFlag = flag.Uint64("migration.seed", 0, "what the random moments and victims come from; 0 for a new one")
)

const (
	// longestSpan bounds the time from a migration's start to a lane's strike.
	longestSpan = 10 * time.Second
	// stormPause bounds the pause between strikes at the parts that all guests share.
	stormPause = 6 * time.Second
)

// TestMigrationsAreInterruptedAtRandom migrates several guests to and fro, and strikes at random moments: at a part
// of one migration, or at one that all share, which interrupts every migration under way. Each guest counts, keeps a
// lease on its disks, and is asked four times a second, in all its pods, whether it lives there. There must never be
// two of it, and it must run on, unless the strike killed its own pod or QEMU: then its VM must start it again. Only
// real processes die in the middle of a step. Not parallel: it kills parts that other tests need.
func TestMigrationsAreInterruptedAtRandom(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	c := newCampaign(t, ns, map[string]int{guestMigration: *killsFor})
	for i := range *trios {
		for j := range 2 {
			c.lane(newMigratableVM(t, ns, fmt.Sprintf("shared-%d-%d", i, j)), "vda")
		}
		c.lane(newPodDiskVM(t, ns, fmt.Sprintf("pod-%d", i)), "vda", "vdb")
	}
	c.run(t)
}

// guestMigration is the kind of migration in which only the guest moves, and its claims stay.
const guestMigration = "migration"

// campaign interrupts the migrations of several guests until it has done so often enough.
type campaign struct {
	ns     string
	seed   uint64
	want   map[string]int // strikes, by the kind of the interrupted migration
	pulses *pulses
	lanes  []*lane
	// booted is released when all guests run, and calm is closed when shared parts are no longer killed.
	booted sync.WaitGroup
	calm   chan struct{}

	mu       sync.Mutex
	gaveUp   bool
	got      map[string]int
	struck   map[string]int
	phases   map[v1.VirtualMachineInstanceMigrationPhase]int
	ends     map[v1.VirtualMachineInstanceMigrationPhase]int
	affected map[types.UID]int
}

func newCampaign(t *testing.T, ns string, want map[string]int) *campaign {
	t.Helper()
	c := &campaign{
		ns: ns, seed: *seedFlag, want: want, pulses: feelPulses(t, ns), calm: make(chan struct{}), got: map[string]int{}, struck: map[string]int{},
		phases: map[v1.VirtualMachineInstanceMigrationPhase]int{}, ends: map[v1.VirtualMachineInstanceMigrationPhase]int{}, affected: map[types.UID]int{},
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	return c
}

func (c *campaign) random(stream int) *rand.Rand {
	return rand.New(rand.NewPCG(c.seed, uint64(stream)))
}

func moment(random *rand.Rand, span time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(span)))
}

// run runs all lanes in parallel.
func (c *campaign) run(t *testing.T) {
	t.Helper()
	configure(t, `{"spec":{"configuration":{"migrations":{"parallelMigrationsPerCluster":20,"parallelOutboundMigrationsPerNode":20}}}}`,
		`{"spec":{"configuration":{"migrations":null}}}`)
	t.Logf("the seed is %d (-migration.seed)", c.seed)
	began := time.Now()
	var all sync.WaitGroup
	c.booted.Add(len(c.lanes))
	side := func(name string, do func(*testing.T)) {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				defer func() { c.giveUpIf(t.Failed()) }()
				do(t)
			})
		})
	}
	for _, l := range c.lanes {
		side(l.vm.Name, l.run)
	}
	side("what they share", c.storm)
	all.Wait()
	total := 0
	for _, n := range c.affected {
		total += n
	}
	t.Logf("figure migration: strikes that interrupted: %v, %d migrations %d times, in %v", c.got, len(c.affected), total, time.Since(began).Round(time.Second))
	t.Logf("figure migration: struck were %v, in the phases %v; the migrations ended %v", c.struck, c.phases, c.ends)
}

func (c *campaign) giveUpIf(failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = c.gaveUp || failed
}

func (c *campaign) enough(kind string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gaveUp || c.got[kind] >= c.want[kind]
}

func (c *campaign) storm(t *testing.T) {
	defer close(c.calm)
	c.booted.Wait()
	random, victims := c.random(len(c.lanes)), sharedVictims()
	for slices.ContainsFunc(slices.Collect(maps.Keys(c.want)), func(kind string) bool { return !c.enough(kind) }) {
		time.Sleep(moment(random, stormPause))
		victim := victims[random.IntN(len(victims))]
		strike, back := victim.find(t)
		c.strike(t, victim.name, strike, func(*v1.VirtualMachineInstanceMigration) bool { return true })
		back()
	}
}

// strike strikes at a victim. A migration that the victim takes part in counts as interrupted if it was under way just
// before, and had not succeeded just after. A strike counts once, however many migrations it interrupts.
func (c *campaign) strike(t *testing.T, victim string, strike func(), takesPart func(*v1.VirtualMachineInstanceMigration) bool) {
	t.Helper()
	before := migrationsIn(t, c.ns)
	strike()
	after := migrationsIn(t, c.ns)
	c.mu.Lock()
	defer c.mu.Unlock()
	hit := map[string]bool{}
	for uid, m := range before {
		if now := after[uid]; m.IsFinal() || m.DeletionTimestamp != nil || !takesPart(m) || now != nil && now.Status.Phase == v1.MigrationSucceeded {
			continue
		}
		hit[c.kindOf(m.Spec.VMIName)] = true
		c.phases[m.Status.Phase]++
		c.affected[uid]++
	}
	for kind := range hit {
		c.got[kind]++
		c.struck[victim]++
	}
}

func (c *campaign) kindOf(vmi string) string {
	i := slices.IndexFunc(c.lanes, func(l *lane) bool { return l.vm.Name == vmi })
	return c.lanes[i].kind
}

func (c *campaign) lane(vm *v1.VirtualMachine, disks ...string) *lane {
	l := &lane{campaign: c, vm: withPulse(vm, disks...), disks: disks, kind: guestMigration, victims: ownVictims(), random: c.random(len(c.lanes))}
	l.begin = l.newMigration
	c.lanes = append(c.lanes, l)
	return l
}

type lane struct {
	*campaign
	vm      *v1.VirtualMachine
	disks   []string
	kind    string
	victims []victim
	random  *rand.Rand
	// begin begins a migration. settled, if not nil, is called when a migration has ended and the guest runs on. rest,
	// if not nil, is called after the last strike, and waits until the guest stays where it is.
	begin   func() *v1.VirtualMachineInstanceMigration
	settled func(after string)
	rest    func()

	t *testing.T
	// span is the duration of its last successful migration, or of its first one.
	span time.Duration
	// instance and boot identify the guest until it is started again.
	instance types.UID
	boot     string
}

func (l *lane) run(t *testing.T) {
	l.t = t
	arrive := sync.OnceFunc(l.booted.Done)
	defer arrive()
	g := bootVM(t, l.vm)
	before := map[string]string{}
	for _, disk := range l.disks {
		// A hotplugged disk may come after the guest has booted.
		g.run("while ! test -b /dev/" + disk + "; do sleep 0.1; done")
		before[disk] = sampled(g, disk)
	}
	l.instance = instanceUID(t, l.ns, l.vm.Name)
	l.boot = l.pulses.awaitBeats(t, l.vm.Name, 0).Boot
	first := l.boot
	arrive()
	l.booted.Wait()
	for !l.enough(l.kind) {
		l.migrate()
	}
	<-l.calm
	if l.boot != first {
		return // its disks may be new
	}
	if l.rest != nil {
		l.rest()
	}
	g = login(t, l.ns, l.vm.Name)
	for disk, want := range before {
		if got := sampled(g, disk); got != want {
			t.Errorf("the disk %s of %s has the checksum %s, want %s", disk, g.name, got, want)
		}
	}
}

// sampled returns the checksum of each eighth MiB of a disk, without the one with the lease.
func sampled(g *guest, disk string) string {
	g.t.Helper()
	return g.run("echo 3 >/proc/sys/vm/drop_caches; n=$(($(cat /sys/block/" + disk + "/size) / 2048)); i=0; " +
		"while [ $i -lt $((n - 1)) ]; do dd if=/dev/" + disk + " bs=1M skip=$i count=1 2>/dev/null; i=$((i + 8)); done | md5sum | cut -c1-32")
}

func (l *lane) newMigration() *v1.VirtualMachineInstanceMigration {
	awaitMigratable(l.t, l.ns, l.vm.Name)
	m := newMigration(l.ns, l.vm.Name)
	create(l.t, m)
	return m
}

// migrate migrates the guest once, and strikes at a random moment. The first time it only measures the duration.
func (l *lane) migrate() {
	m := l.begin()
	began, after := time.Now(), "a migration"
	mayEnd, first := false, l.span == 0
	if !first {
		when, victim, struck := moment(l.random, l.span), l.victims[l.random.IntN(len(l.victims))], false
		time.Sleep(when)
		struck, mayEnd = l.interrupt(victim, m)
		after = fmt.Sprintf("%v of a migration (%s struck: %v)", when.Round(time.Millisecond), victim.name, struck)
	}
	end, took := endOf(l.t, m), time.Since(began)
	after += fmt.Sprintf(" that has ended after %.1f s: %s", took.Seconds(), end)
	if first || end == v1.MigrationSucceeded {
		l.span = min(took, longestSpan)
	}
	l.mu.Lock()
	l.ends[end]++
	l.mu.Unlock()
	l.goesOn(mayEnd, after)
	l.t.Logf("%s goes on %.1f s after %s", l.vm.Name, (time.Since(began) - took).Seconds(), after)
	if l.settled != nil {
		l.settled(after)
	}
}

// interrupt strikes at a victim if it exists while the migration is under way. It reports whether it struck, and
// whether the guest may end with the victim.
func (l *lane) interrupt(victim victim, m *v1.VirtualMachineInstanceMigration) (struck, mayEnd bool) {
	vmi, now := l.reads(), migrationOf(l.t, l.ns, m.UID)
	if now == nil || now.IsFinal() {
		return false, false
	}
	strike := victim.find(l.t, vmi, m.UID)
	if strike == nil {
		return false, false
	}
	l.strike(l.t, victim.name, strike, func(other *v1.VirtualMachineInstanceMigration) bool { return other.UID == m.UID })
	return true, victim.with == always || victim.with == onceSent && sent(l.reads(), m.UID)
}

func (l *lane) reads() *v1.VirtualMachineInstance {
	l.t.Helper()
	vmi := objectFor(l.ns, l.vm.Name)
	if err := cluster.client.Get(l.t.Context(), client.ObjectKeyFromObject(vmi), vmi); err != nil {
		l.t.Fatalf("reading the VMI %s: %v", l.vm.Name, err)
	}
	return vmi
}

// sent reports whether a guest is on its way: it may start to run at the target at any moment.
func sent(vmi *v1.VirtualMachineInstance, migration types.UID) bool {
	s := vmi.Status.MigrationState
	return s != nil && s.MigrationUID == migration && s.StartTimestamp != nil
}

// goesOn waits until the guest runs in exactly one pod and answers there. Unless it may have ended, it must be the same
// guest.
func (l *lane) goesOn(mayEnd bool, after string) {
	l.t.Helper()
	asked, before := l.pulses.Asked(), l.pulses.Last(l.vm.Name)
	vmi := objectFor(l.ns, l.vm.Name)
	eventually(l.t, l.vm.Name+" to go on after "+after, func(ctx context.Context) error {
		if err := l.pulses.Err(); err != nil {
			l.t.Fatalf("after %s: %v", after, err)
		}
		if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(vmi), vmi); err != nil {
			return err
		}
		now := l.pulses.Last(l.vm.Name)
		if again := vmi.UID != l.instance || now.Boot != l.boot; again && !mayEnd {
			l.t.Fatalf("%s was started again after %s: its VMI is %s (%s before), its boot %s (%s)", l.vm.Name, after, vmi.UID, l.instance, now.Boot, l.boot)
		}
		if now.Asked <= asked || now.Boot == before.Boot && now.Beats <= before.Beats {
			return fmt.Errorf("it does not answer: %+v", now)
		}
		return l.livesIn(vmi, now)
	})
	l.instance, l.boot = vmi.UID, l.pulses.Last(l.vm.Name).Boot
}

// livesIn returns an error unless the guest lives only where it answers from.
func (l *lane) livesIn(vmi *v1.VirtualMachineInstance, now pulse.Sighting) error {
	switch pods := launcherPods(l.t, vmi); {
	case !ready(vmi) || vmi.DeletionTimestamp != nil:
		return fmt.Errorf("it is %s, and not ready or being deleted", vmi.Status.Phase)
	case len(pods) != 1 || pods[0].DeletionTimestamp != nil || pods[0].Status.Phase != corev1.PodRunning || pods[0].Spec.NodeName != vmi.Status.NodeName:
		return fmt.Errorf("it is on %s, and its %d pods are not one that runs there", vmi.Status.NodeName, len(pods))
	case now.Pod != pods[0].Name:
		return fmt.Errorf("it is in the pod %s, and answers from %s", pods[0].Name, now.Pod)
	case vmi.UID != l.instance && now.Boot == l.boot:
		return fmt.Errorf("its next instance does not answer")
	}
	// The QEMU of a pod that was deleted by force ends after the pod. The run states show which of several QEMUs
	// run.
	if n := qemusOf(string(vmi.Spec.Domain.Firmware.UUID)); n != 1 {
		return fmt.Errorf("it has %d QEMUs", n)
	}
	return nil
}

// endOf waits until a migration has ended, and returns its phase. A deleted migration has failed, unless it ended
// before.
func endOf(t *testing.T, m *v1.VirtualMachineInstanceMigration) v1.VirtualMachineInstanceMigrationPhase {
	t.Helper()
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err == nil && m.DeletionTimestamp == nil {
		return awaitMigration(t, m, "its end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() }).Status.Phase
	}
	awaitGone(t, m)
	return "Canceled"
}
