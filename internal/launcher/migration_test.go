package launcher

import (
	"path/filepath"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
)

type pair struct {
	source, target *running
	// at are virt-handlers' connections.
	atSource, atTarget *client
	// from and to are the monitors.
	from, to *qmp.Client
}

type properties = map[string]any

func switches(names ...string) properties {
	var list []properties
	for _, name := range names {
		list = append(list, properties{"capability": name, "state": true})
	}
	return properties{"capabilities": list}
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{source: newLauncher(t), target: newLauncher(t)}
	p.atSource, _ = p.source.start(30)
	p.atTarget, _ = p.target.connect()
	reply := p.atTarget.ask(launch.Request{Start: &launch.Start{
		Args: p.target.qemuArgs("-S", "-incoming", "defer"), GracePeriodSeconds: 30, Incoming: true,
	}})
	if reply.Error != "" {
		t.Fatalf("starting the target: %+v", reply)
	}
	p.from, p.to = p.source.monitor(), p.target.monitor()
	return p
}

// migrate makes the source send its memory, stop its guest, and wait.
func (p *pair) migrate(t *testing.T) {
	t.Helper()
	uri := properties{"uri": "unix:" + filepath.Join(p.target.dir, "migration.sock")}
	execute(t, p.to, "migrate-set-capabilities", switches("events", "return-path", "late-block-activate"))
	execute(t, p.to, "migrate-incoming", uri)
	execute(t, p.from, "migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover"))
	execute(t, p.from, "migrate", uri)
	awaitMigration(t, p.from, "pre-switchover")
}

func execute(t *testing.T, m *qmp.Client, command string, arguments any) {
	t.Helper()
	if err := m.Execute(t.Context(), command, arguments, nil); err != nil {
		t.Fatal(err)
	}
}

func awaitMigration(t *testing.T, m *qmp.Client, status string) {
	t.Helper()
	waitFor(t, "migration status "+status, func() bool {
		var is struct{ Status string }
		return m.Execute(t.Context(), "query-migrate", nil, &is) == nil && is.Status == status
	})
}

func awaitRunState(t *testing.T, m *qmp.Client, state string) {
	t.Helper()
	waitFor(t, "run state "+state, func() bool {
		var is struct{ Status string }
		return m.Execute(t.Context(), "query-status", nil, &is) == nil && is.Status == state
	})
}

func TestAGuestGoesOnAfterVirtHandlerWasAwayDuringItsHandover(t *testing.T) {
	p := newPair(t)
	p.migrate(t)
	awaitRunState(t, p.from, "finish-migrate")
	_ = p.atSource.conn.Close()
	awaitMigration(t, p.from, string(migrationstatus.Canceled))
	awaitRunState(t, p.from, "running")
	if exit := p.atTarget.exited(); exit.Incoming != launch.IncomingNeverRan {
		t.Errorf("the target has ended with %+v", exit)
	}
	if _, state := p.source.connect(); state.Phase != launch.PhaseRunning {
		t.Errorf("the source is %+v", state)
	}
}

func TestAGuestThatWasHandedOverIsNoLongerTheLaunchers(t *testing.T) {
	p := newPair(t)
	p.migrate(t)
	execute(t, p.from, "migrate-continue", properties{"state": "pre-switchover"})
	awaitMigration(t, p.from, "completed")
	awaitRunState(t, p.to, "paused")
	execute(t, p.to, "cont", nil)
	awaitRunState(t, p.to, "running")
	// The pod of the source is deleted, then the target's QEMU ends.
	if err := p.source.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := p.atSource.exited(); exit != (launch.Exit{Reason: launch.ReasonMigrated}) {
		t.Errorf("the source has ended with %+v", exit)
	}
	_ = p.to.Execute(t.Context(), "quit", nil, nil)
	if exit := p.atTarget.exited(); exit != (launch.Exit{Reason: launch.ReasonHostShutdown, Incoming: launch.IncomingRan}) {
		t.Errorf("the target has ended with %+v", exit)
	}
}

func TestAPodIsDeletedBeforeItsGuestHasRun(t *testing.T) {
	p := newPair(t)
	p.migrate(t)
	execute(t, p.from, "migrate-continue", properties{"state": "pre-switchover"})
	awaitMigration(t, p.from, "completed")
	awaitRunState(t, p.to, "paused")
	if err := p.target.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := p.atTarget.exited(); exit != (launch.Exit{Reason: launch.ReasonHostShutdown, Incoming: launch.IncomingNeverRan}) {
		t.Errorf("the target has ended with %+v", exit)
	}
	// The source may continue, and its end counts as an end again.
	execute(t, p.from, "cont", nil)
	awaitRunState(t, p.from, "running")
	_ = p.from.Execute(t.Context(), "quit", nil, nil)
	if exit := p.atSource.exited(); exit != (launch.Exit{Reason: launch.ReasonHostShutdown}) {
		t.Errorf("the source has ended with %+v", exit)
	}
}
