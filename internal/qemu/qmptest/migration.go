package qmptest

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// Statuses of a migration.
const (
	migrationSetup         = "setup"
	migrationActive        = "active"
	migrationPreSwitchover = "pre-switchover"
	migrationDevice        = "device"
	migrationCompleted     = "completed"
	migrationFailed        = "failed"
	migrationCanceling     = "cancelling" //nolint:misspell // QEMU's word
	migrationCanceled      = "cancelled"  //nolint:misspell // QEMU's word
)

// defaultMemory is the size of a machine's memory to send, in bytes.
const defaultMemory = 1 << 20

// migration is the state of the last migration and the settings for the next one.
type migration struct {
	capabilities map[string]bool
	parameters   map[string]json.RawMessage
	status       string
	failure      string
	// conn is the stream; listener is where a target waits for it.
	conn         net.Conn
	listener     net.Listener
	channelConns []net.Conn
	// proceed is closed when a source must continue after pre-switchover, or give up.
	proceed chan struct{}
	// state is the run state in which the migration stopped the guest; wasRunning means that it ran.
	state      string
	wasRunning bool
	sent       int64

	// round is the reported number of passes over the memory; 0 is reported as 1.
	round int
	// elapsed is the reported duration of the migration.
	elapsed time.Duration
	// memory is the size to send, dirty the guest's changes per second, both in bytes. held keeps the migration active
	// until it is closed.
	memory, dirty int64
	held          chan struct{}
	postCopy      postCopy
	noPostCopy    bool
	// hurry is closed when a source must switch to post-copy.
	hurry chan struct{}
}

// NewIncoming is New for a QEMU with -incoming defer.
func NewIncoming(t testing.TB) *Server {
	s := New(t)
	s.machine.runState = "inmigrate"
	return s
}

// SetMemory sets the memory to send, and the changes per second, in bytes.
func (s *Server) SetMemory(bytes, dirty int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.memory, s.machine.migration.dirty = bytes, dirty
}

// SetElapsed sets the reported duration of migrations.
func (s *Server) SetElapsed(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.elapsed = d
}

// SetRound sets the reported number of passes over the guest's memory.
func (s *Server) SetRound(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.round = n
}

// HoldMigration keeps a migration active until it is released, as if the guest changed its memory faster than it is
// sent.
func (s *Server) HoldMigration() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.machine.migration.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.machine.migration.held == held {
			s.machine.migration.held = nil
			close(held)
		}
	}
}

// FailMigration makes the migration in progress fail.
func (s *Server) FailMigration(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.machine.migration
	m.failure = reason
	if m.conn != nil {
		_ = m.conn.Close()
	}
	s.wakeMigration()
}

// MigrationStatus returns the status of the last migration.
func (s *Server) MigrationStatus() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.migration.status
}

// MemorySent returns how much of the guest's memory was sent, in bytes.
func (s *Server) MemorySent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.migration.sent
}

// Capability reports whether a capability is on.
func (s *Server) Capability(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.migration.capabilities[name]
}

// Parameter returns a parameter as JSON, "" if it was not set.
func (s *Server) Parameter(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.machine.migration.parameters[name])
}

func newMigration() migration {
	return migration{capabilities: map[string]bool{}, parameters: map[string]json.RawMessage{}, memory: defaultMemory}
}

func (m *migration) underWay() bool {
	switch m.status {
	case migrationSetup, migrationActive, migrationPreSwitchover, migrationDevice, migrationCanceling,
		migrationPostCopyActive, migrationPostCopyPaused, migrationPostCopyRecover:
		return true
	}
	return false
}

// The caller holds s.mu.
func (m *migration) close() {
	if m.conn != nil {
		_ = m.conn.Close()
	}
	if m.listener != nil {
		_ = m.listener.Close()
	}
	for _, conn := range m.channelConns {
		_ = conn.Close()
	}
}

// setMigration changes the status and sends the event. The caller holds s.mu.
func (s *Server) setMigration(status string) {
	s.machine.migration.status = status
	s.reportMigration(status)
	switch {
	case status == migrationPostCopyActive, status == migrationCompleted:
		s.memoryArrives()
	case s.machine.needsMemory:
		s.awaitMemory()
	}
}

// reportMigration only sends the event. The caller holds s.mu.
func (s *Server) reportMigration(status string) {
	if s.machine.migration.capabilities["events"] {
		s.emit("MIGRATION", map[string]any{"status": status})
	}
}

// The caller holds s.mu.
func (s *Server) wakeMigration() {
	if m := &s.machine.migration; m.proceed != nil {
		close(m.proceed)
		m.proceed = nil
	}
}

func (s *Server) setCapabilities(_ *monitor, a arguments) (any, error) {
	for _, c := range a.Capabilities {
		if c.Capability == "postcopy-ram" && c.State && s.machine.migration.noPostCopy {
			return nil, generic("Postcopy is not supported")
		}
	}
	if s.machine.migration.underWay() {
		return nil, generic("There's a migration process in progress")
	}
	for _, c := range a.Capabilities {
		s.machine.migration.capabilities[c.Capability] = c.State
	}
	return nil, nil
}

func (s *Server) setParameters(_ *monitor, a arguments) (any, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(a.raw, &values); err != nil {
		return nil, err
	}
	for name, value := range values {
		s.machine.migration.parameters[name] = value
	}
	s.machine.migration.limitPostCopy(values["max-postcopy-bandwidth"])
	return nil, nil
}

func (s *Server) queryMigrate(*monitor, arguments) (any, error) {
	m := &s.machine.migration
	if m.status == "" {
		return nil, nil
	}
	info := map[string]any{"status": m.status}
	if m.failure != "" && m.status == migrationFailed {
		info["error-desc"] = m.failure
	}
	if m.status != migrationFailed && (m.sent > 0 || m.status == migrationActive) {
		info["total-time"], info["setup-time"] = m.elapsed.Milliseconds(), 1
		info["ram"] = map[string]any{
			"total": m.memory, "transferred": m.sent, "remaining": max(0, m.memory-m.sent), "page-size": 4096,
			"dirty-pages-rate": m.dirty / 4096, "mbps": 8.0, "dirty-sync-count": max(1, m.round), "postcopy-bytes": m.postCopy.sent,
		}
	}
	if m.status == migrationCompleted && m.sent > 0 {
		info["downtime"] = 3
	}
	return info, nil
}

// SetFolder maps a folder in QEMU's container to the test's path.
func (s *Server) SetFolder(inside, outside string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside, s.outside = inside, outside
}

func (s *Server) socketOf(uri string) (string, error) {
	path, ok := strings.CutPrefix(uri, "unix:")
	if !ok {
		return "", generic("unknown migration protocol: %s", uri)
	}
	if rest, ok := strings.CutPrefix(path, s.inside); ok && s.inside != "" {
		path = s.outside + rest
	}
	return path, nil
}

func (s *Server) migrateIncoming(_ *monitor, a arguments) (any, error) {
	m := &s.machine.migration
	if m.listener != nil {
		return nil, generic("The incoming migration has already been started")
	}
	if s.machine.runState != "inmigrate" {
		return nil, generic("'-incoming' was not specified on the command line")
	}
	path, err := s.socketOf(a.URI)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(path) // as QEMU does
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, generic("Failed to bind socket to %s: %v", path, err)
	}
	m.listener = listener
	s.reportMigration(migrationSetup) // query-migrate still returns nothing, as QEMU's
	s.serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if s.acceptChannels(listener) != nil {
			_ = conn.Close()
			return
		}
		s.receive(conn)
	})
	return nil, nil
}

func (s *Server) migrate(_ *monitor, a arguments) (any, error) {
	m := &s.machine.migration
	path, err := s.socketOf(a.URI)
	switch {
	case err != nil:
		return nil, err
	case a.Resume:
		return nil, s.resume(path)
	case m.underWay():
		return nil, generic("There's a migration process in progress")
	case s.machine.runState == "inmigrate":
		return nil, generic("Guest is waiting for an incoming migration")
	case s.machine.runState == "postmigrate":
		return nil, generic("Can't migrate the vm that was paused due to previous migration")
	}
	m.failure, m.sent, m.proceed = "", 0, make(chan struct{})
	m.hurry, m.postCopy.asked, m.postCopy.sent = make(chan struct{}), false, 0
	m.wasRunning = s.machine.running()
	s.setMigration(migrationSetup)
	s.serving.Go(func() { s.send(path) })
	return nil, nil
}

func (s *Server) migrateContinue(_ *monitor, a arguments) (any, error) {
	m := &s.machine.migration
	if m.status != a.State {
		return nil, generic("Migration not in expected state: %s", m.status)
	}
	s.setMigration(m.handover())
	s.wakeMigration()
	return nil, nil
}

func (s *Server) migrateCancel(*monitor, arguments) (any, error) {
	m := &s.machine.migration
	switch m.status {
	case migrationPostCopyActive, migrationPostCopyPaused, migrationPostCopyRecover:
		// QEMU 7.2 takes it, and may never end then.
		return nil, generic("Postcopy migration in progress, cannot cancel.")
	case migrationSetup, migrationActive, migrationPreSwitchover, migrationDevice:
		s.setMigration(migrationCanceling)
		if m.conn != nil {
			_ = m.conn.Close()
		}
		s.wakeMigration()
	}
	return nil, nil
}
