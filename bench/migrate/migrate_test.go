package migrate

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func settings(qemu *qmptest.Server) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"events", "return-path", "pause-before-switchover", "late-block-activate", "auto-converge", "postcopy-ram",
		"multifd", "compress", "xbzrle", "zero-copy-send", "dirty-bitmaps",
	} {
		all[name] = "off"
		if qemu.Capability(name) {
			all[name] = "on"
		}
	}
	for _, name := range []string{"max-bandwidth", "downtime-limit", "multifd-channels", "cpu-throttle-initial"} {
		all[name] = qemu.Parameter(name)
	}
	return all
}

func compare(t *testing.T, side string, ours, handlers *qmptest.Server) {
	t.Helper()
	want := settings(handlers)
	for name, got := range settings(ours) {
		if got != want[name] {
			t.Errorf("the baseline's %s has %s %q, virt-handler's %q", side, name, got, want[name])
		}
	}
}

func handled(t *testing.T, qemu *qmptest.Server) *guest.Guest {
	t.Helper()
	conn, ok := qemu.Dial().(*net.UnixConn)
	if !ok {
		t.Fatal("the monitor is no unix socket")
	}
	g, err := guest.Open(t.Context(), conn, guest.Env{
		OnEvent: func(qmp.Event) bool { return false }, Wake: func() {}, Now: time.Now, Log: logr.Discard(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func running(t *testing.T) *qmptest.Server {
	qemu := qmptest.New(t)
	qemu.SetRunState(runstate.Running)
	return qemu
}

func attached(t *testing.T, qemu *qmptest.Server) *end {
	t.Helper()
	e := &end{moments: newMoments()}
	var err error
	if e.monitor, err = qmp.New(t.Context(), qemu.Dial(), e.moments.note); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.monitor.Close() })
	return e
}

// The migration must end with both times known.
func TestTheBaselineMigratesWithVirtHandlersSettings(t *testing.T) {
	dir := t.TempDir()
	theirs := struct{ source, target *qmptest.Server }{running(t), qmptest.NewIncoming(t)}
	theirs.target.AddObject(machine.MarkerType, machine.IncomingMarker("m"))
	theirs.source.HoldMigration()
	if _, err := handover.TargetOf(handled(t, theirs.target)).Listen(t.Context(), filepath.Join(dir, "theirs"), switchover.Transport{}); err != nil {
		t.Fatal(err)
	}
	limits := switchover.LimitsOf(nil, 0)
	begin := handover.Begin{Migration: "m", Socket: filepath.Join(dir, "theirs"), Downtime: limits.AllowedDowntime(math.MaxInt64)}
	if err := handover.SourceOf(handled(t, theirs.source)).Begin(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	ours := struct{ source, target *qmptest.Server }{running(t), qmptest.NewIncoming(t)}
	var cost bare
	if err := cost.migrate(t.Context(), attached(t, ours.source), attached(t, ours.target), "unix:"+filepath.Join(dir, "ours")); err != nil {
		t.Fatal(err)
	}
	if cost.total <= 0 || cost.downtime <= 0 || cost.sent != 1<<20 {
		t.Errorf("the baseline's migration has cost %+v", cost)
	}
	if ours.target.RunState() != runstate.Running || ours.source.RunState() != runstate.PostMigrate {
		t.Errorf("the source is %s, the target %s", ours.source.RunState(), ours.target.RunState())
	}
	compare(t, "source", ours.source, theirs.source)
	compare(t, "target", ours.target, theirs.target)
}

func TestABaselineWhoseMigrationFailsIsNotWaitedFor(t *testing.T) {
	m := newMoments()
	m.note(qmp.Event{Name: "MIGRATION", Data: json.RawMessage(`{"status":"failed"}`)})
	if _, err := m.await(t.Context(), "RESUME"); err == nil || !strings.Contains(err.Error(), "waiting for RESUME: the migration has failed") {
		t.Errorf("waiting ends with %v", err)
	}
	m.forget()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.await(ctx, reached("failed")); err == nil {
		t.Error("what was forgotten is still known")
	}
}

func TestTheStagesOfAMigrationAreThoseThatItReachedFirst(t *testing.T) {
	c := &course{known: "before", sources: nil, at: map[string]time.Time{}}
	pod := &corev1.Pod{}
	pod.UID = "new"
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "before", Completed: true}
	if c.sawVMI("", vmi) {
		t.Error("an earlier migration counts")
	}
	c.note(map[string]bool{"created": true, "bound": false})
	if c.sawPod("", pod) || len(c.at) != 2 {
		t.Errorf("a pod without a node has reached %v", c.at)
	}
	first := c.at["pod"]
	pod.Spec.NodeName, pod.Status.Phase = "b", corev1.PodRunning
	if !c.sawPod("", pod) || len(c.at) != 4 || c.at["pod"] != first {
		t.Errorf("a pod that runs has reached %v", c.at)
	}
	vmi.Status.MigrationState.MigrationUID = "ours"
	if !c.sawVMI("", vmi) || c.at["completed"].IsZero() || !c.at["ready"].IsZero() {
		t.Errorf("a completed migration has reached %v", c.at)
	}
	m := &v1.VirtualMachineInstanceMigration{}
	if c.sawMigration("", m) {
		t.Error("a migration that goes on is its end")
	}
	m.Status.Phase = v1.MigrationFailed
	m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{FailureReason: "no room"}
	if !c.sawMigration("", m) || c.failure != "it is Failed: no room" {
		t.Errorf("a failed migration is told as %q", c.failure)
	}
	for stage, d := range c.durations() {
		if d < 0 {
			t.Errorf("%s has taken %v", stage, d)
		}
	}
}

func TestTheFiguresOfAMigrationAreTheDifferenceOfTwoPages(t *testing.T) {
	page := func(n, seconds string) string {
		return "# TYPE drydock_vmi_migration_downtime_seconds histogram\n" +
			"drydock_vmi_migration_downtime_seconds_bucket{node=\"a\",le=\"+Inf\"} 7\n" +
			"drydock_vmi_migration_downtime_seconds_sum{node=\"a\"} " + seconds + "\n" +
			"drydock_vmi_migration_downtime_seconds_count{node=\"a\"} " + n + "\n" +
			"drydock_vmi_migration_duration_seconds_sum{node=\"a\"} 2\n" +
			"drydock_vmi_migration_sent_bytes_sum{node=\"a\"} 1.048576e+06\n"
	}
	before, after := figuresOf(page("1", "0.25")), figuresOf(page("2", "0.75")).plus(figuresOf(page("0", "0")))
	if got, want := after.minus(before), (figures{1, 0.5, 2, 1 << 20}); got != want {
		t.Errorf("the figures are %+v, want %+v", got, want)
	}
}
