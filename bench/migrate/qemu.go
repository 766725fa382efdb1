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

// The settings of Drydock's migrations. A test compares them with virt-handler's.
const (
	// unlimited is more bytes per second than any network sends.
	unlimited = 1 << 50
	// downtimeLimit is in milliseconds: virt-handler's maximum, which begins with less.
	downtimeLimit = 100
)

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

func prepareSource(ctx context.Context, source *qmp.Client) error {
	if err := source.Execute(ctx, "migrate-set-capabilities", capabilities("events", "return-path", "pause-before-switchover"), nil); err != nil {
		return err
	}
	return source.Execute(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": unlimited, "downtime-limit": downtimeLimit}, nil)
}

// The target listens afterwards.
func prepareTarget(ctx context.Context, target *qmp.Client, uri string) error {
	if err := target.Execute(ctx, "migrate-set-capabilities", capabilities("events", "return-path", "late-block-activate"), nil); err != nil {
		return err
	}
	return target.Execute(ctx, "migrate-incoming", map[string]any{"uri": uri}, nil)
}

// moments has the times of QEMU's events, by the machine's clock. The monitor's goroutine writes them.
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

func (m *moments) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = map[string]time.Time{}
}

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

// await waits for an event and fails when the migration does.
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

type end struct {
	qemu    *baseline.Guest
	monitor *qmp.Client
	moments *moments
}

// attach connects to the monitor of a new QEMU, and stops it on failure.
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

type bare struct {
	// start lasts until the target's monitor answers and is not part of total, which begins with the command and
	// ends with the target's RESUME.
	start, total, downtime time.Duration
	sent                   float64
}

// The other QEMU becomes the baseline.
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

// migrate does virt-handler's steps without delay. The target's guest runs once both QEMUs report completion,
// when the source's can't run any more.
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
	var info struct {
		RAM struct {
			Transferred float64 `json:"transferred"`
		} `json:"ram"`
	}
	if err := source.monitor.Execute(ctx, "query-migrate", nil, &info); err != nil {
		return err
	}
	b.sent = info.RAM.Transferred
	return nil
}

// statusOf returns the status in an event MIGRATION, empty if there is none.
func statusOf(e qmp.Event) migrationstatus.Status {
	var data struct {
		Status migrationstatus.Status `json:"status"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return ""
	}
	return data.Status
}
