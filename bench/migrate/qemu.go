package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// The settings of Drydock's migrations, which a test compares with those that virt-handler makes.
const (
	// unlimited is as many bytes in a second as no network sends.
	unlimited = 1 << 50
	// downtimeLimit is how many milliseconds QEMU may stop a guest for the last of its memory: as many as virt-handler
	// allows at most, which begins with less.
	downtimeLimit = 100
)

// capability is one of QEMU's that is switched on for a migration.
type capability struct {
	Name  string `json:"capability"`
	State bool   `json:"state"`
}

func capabilities(names ...string) map[string]any {
	var list []capability
	for _, name := range names {
		list = append(list, capability{name, true})
	}
	return map[string]any{"capabilities": list}
}

// prepareSource makes Drydock's settings in a QEMU that sends its guest.
func prepareSource(ctx context.Context, source *qmp.Client) error {
	if err := source.Execute(ctx, "migrate-set-capabilities", capabilities("events", "return-path", "pause-before-switchover"), nil); err != nil {
		return err
	}
	return source.Execute(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": unlimited, "downtime-limit": downtimeLimit}, nil)
}

// prepareTarget makes those in a QEMU that takes it, and has it listen.
func prepareTarget(ctx context.Context, target *qmp.Client, uri string) error {
	if err := target.Execute(ctx, "migrate-set-capabilities", capabilities("events", "return-path", "late-block-activate"), nil); err != nil {
		return err
	}
	return target.Execute(ctx, "migrate-incoming", map[string]any{"uri": uri}, nil)
}

// moments notes when QEMU says that something has happened, by the machine's clock. The
// monitor's goroutine writes them.
type moments struct {
	mu      sync.Mutex
	seen    map[string]time.Time
	changed chan struct{}
}

func newMoments() *moments {
	m := &moments{changed: make(chan struct{})}
	m.forget()
	return m
}

// forget forgets what an earlier migration has left.
func (m *moments) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = map[string]time.Time{}
}

// reached is what a migration's status is noted as.
func reached(status migrationstatus.Status) string { return "MIGRATION " + string(status) }

func (m *moments) note(e qmp.Event) {
	name := e.Name
	if name == "MIGRATION" {
		name = reached(statusOf(e))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[name] = e.Time
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until something has happened, unless the migration fails before.
func (m *moments) await(ctx context.Context, name string) (time.Time, error) {
	for {
		m.mu.Lock()
		at, seen := m.seen[name]
		_, failed := m.seen[reached(migrationstatus.Failed)]
		changed := m.changed
		m.mu.Unlock()
		switch {
		case seen:
			return at, nil
		case failed:
			return time.Time{}, fmt.Errorf("waiting for %s: the migration has failed", name)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for %s: %w", name, ctx.Err())
		case <-changed:
		}
	}
}

// end is one QEMU of a migration without Kubernetes.
type end struct {
	qemu    *baseline.Guest
	monitor *qmp.Client
	moments *moments
}

// attach connects to the monitor of a QEMU that was just started, and ends it if that fails.
func attach(ctx context.Context, qemu *baseline.Guest) (*end, error) {
	e := &end{qemu: qemu, moments: newMoments()}
	var err error
	if e.monitor, err = qemu.Monitor(ctx, e.moments.note); err != nil {
		qemu.Stop()
		return nil, fmt.Errorf("connecting to the baseline: %w", err)
	}
	return e, nil
}

func (e *end) stop() {
	_ = e.monitor.Close()
	e.qemu.Stop()
}

// bare is what a migration between two QEMUs has cost.
type bare struct {
	// start is how long the target took until its monitor answered; it is no part of total, which
	// is the time from the command until the target says that the guest runs.
	start, total, downtime time.Duration
	sent                   float64
}

// migrateBaseline brings the baseline's guest to another QEMU, which is the baseline from then on.
func (s *setting) migrateBaseline(ctx context.Context, number int) (bare, error) {
	twin, err := s.machine.StartTwin(ctx, "twin-"+strconv.Itoa(number))
	if err != nil {
		return bare{}, err
	}
	target, err := attach(ctx, twin)
	if err != nil {
		return bare{}, err
	}
	cost := bare{start: time.Since(twin.Began)}
	if err := cost.migrate(ctx, s.baseline, target, "unix:"+s.machine.Path("migration-"+strconv.Itoa(number)+".sock")); err != nil {
		target.stop()
		return bare{}, fmt.Errorf("migrating the baseline: %w", err)
	}
	s.baseline.stop()
	s.baseline = target
	return cost, nil
}

// migrate does what virt-handler does, as fast as it can be done: the target's guest is run when both
// QEMUs say that it is there, and the source's is not.
func (b *bare) migrate(ctx context.Context, source, target *end, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	if err := errors.Join(prepareTarget(ctx, target.monitor, uri), prepareSource(ctx, source.monitor)); err != nil {
		return err
	}
	source.moments.forget()
	began := time.Now()
	if err := source.monitor.Execute(ctx, "migrate", map[string]any{"uri": uri}, nil); err != nil {
		return err
	}
	if _, err := source.moments.await(ctx, reached(migrationstatus.PreSwitchover)); err != nil {
		return err
	}
	if err := source.monitor.Execute(ctx, "migrate-continue", map[string]any{"state": migrationstatus.PreSwitchover}, nil); err != nil {
		return err
	}
	for _, side := range []*end{source, target} {
		if _, err := side.moments.await(ctx, reached(migrationstatus.Completed)); err != nil {
			return err
		}
	}
	if err := target.monitor.Execute(ctx, "cont", nil, nil); err != nil {
		return err
	}
	resumed, err := target.moments.await(ctx, "RESUME")
	if err != nil {
		return err
	}
	stopped, err := source.moments.await(ctx, "STOP")
	if err != nil {
		return err
	}
	b.total, b.downtime = resumed.Sub(began), resumed.Sub(stopped)
	return b.readSent(ctx, source.monitor)
}

// readSent asks how much the source has sent.
func (b *bare) readSent(ctx context.Context, source *qmp.Client) error {
	var info struct {
		RAM struct {
			Transferred float64 `json:"transferred"`
		} `json:"ram"`
	}
	if err := source.Execute(ctx, "query-migrate", nil, &info); err != nil {
		return err
	}
	b.sent = info.RAM.Transferred
	return nil
}

// statusOf is the status that an event MIGRATION tells; empty if it tells none.
func statusOf(e qmp.Event) migrationstatus.Status {
	var data struct {
		Status migrationstatus.Status `json:"status"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return ""
	}
	return data.Status
}
