package qmptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// defaultMemory is what a machine has to send, in bytes.
const defaultMemory = 1 << 20

// migration is what a machine has of migrations: of the last one, and how the next will go.
type migration struct {
	capabilities map[string]bool
	parameters   map[string]json.RawMessage
	status       string
	failure      string
	// conn is the stream, and listener where a target waits for it.
	conn     net.Conn
	listener net.Listener
	// proceed is closed when a source is to go on after pre-switchover, or to give up.
	proceed chan struct{}
	// state is the run state in which the migration has stopped the guest; wasRunning means
	// that it ran.
	state      string
	wasRunning bool
	sent       int64

	// elapsed is for how long the migration goes on, as QEMU says.
	elapsed time.Duration
	// memory is how much there is to send, dirty how much of it the guest changes in a
	// second. held has the migration not come to its end, and is closed when it may.
	memory, dirty int64
	held          chan struct{}
}

// NewIncoming is New for a QEMU with -incoming defer.
func NewIncoming(t testing.TB) *Server {
	s := New(t)
	s.machine.runState = "inmigrate"
	return s
}

// SetMemory says how much memory is to be sent, and how much of it the guest changes in a second,
// in bytes.
func (s *Server) SetMemory(bytes, dirty int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.memory, s.machine.migration.dirty = bytes, dirty
}

// SetElapsed says for how long the migrations go on, as QEMU says.
func (s *Server) SetElapsed(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.elapsed = d
}

// HoldMigration has the guest change its memory faster than it is sent: a migration stays active
// until it is released.
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

// FailMigration has a migration that is under way fail.
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

// MigrationStatus is that of the last migration.
func (s *Server) MigrationStatus() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.migration.status
}

// Capability reports whether a capability of migrations is on.
func (s *Server) Capability(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.migration.capabilities[name]
}

// Parameter is a parameter of migrations as JSON; "" for one that was not set.
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
	case migrationSetup, migrationActive, migrationPreSwitchover, migrationDevice, migrationCanceling:
		return true
	}
	return false
}

// close ends what belongs to a QEMU that ends. The caller holds s.mu.
func (m *migration) close() {
	if m.conn != nil {
		_ = m.conn.Close()
	}
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

// setMigration changes the status, and reports it. The caller holds s.mu.
func (s *Server) setMigration(status string) {
	s.machine.migration.status = status
	if s.machine.migration.capabilities["events"] {
		s.emit("MIGRATION", map[string]any{"status": status})
	}
}

// wakeMigration has a source look at what has been decided. The caller holds s.mu.
func (s *Server) wakeMigration() {
	if m := &s.machine.migration; m.proceed != nil {
		close(m.proceed)
		m.proceed = nil
	}
}

func (s *Server) setCapabilities(_ *monitor, a arguments) (any, error) {
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
	if m.sent > 0 || m.status == migrationActive {
		info["total-time"], info["setup-time"] = m.elapsed.Milliseconds(), 1
		info["ram"] = map[string]any{
			"total": m.memory, "transferred": m.sent, "remaining": max(0, m.memory-m.sent), "page-size": 4096,
			"dirty-pages-rate": m.dirty / 4096, "mbps": 8.0, "dirty-sync-count": 1,
		}
	}
	if m.status == migrationCompleted && m.sent > 0 {
		info["downtime"] = 3
	}
	return info, nil
}

// SetFolder says where a folder is that QEMU knows by another name, as a container's processes do.
func (s *Server) SetFolder(inside, outside string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside, s.outside = inside, outside
}

// socketOf is the path in a URI of a migration.
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
	s.setMigration(migrationSetup)
	s.serving.Go(func() {
		conn, err := listener.Accept()
		if err == nil {
			s.receive(conn)
		}
	})
	return nil, nil
}

func (s *Server) migrate(_ *monitor, a arguments) (any, error) {
	m := &s.machine.migration
	path, err := s.socketOf(a.URI)
	switch {
	case err != nil:
		return nil, err
	case m.underWay():
		return nil, generic("There's a migration process in progress")
	case s.machine.runState == "inmigrate":
		return nil, generic("Guest is waiting for an incoming migration")
	case s.machine.runState == "postmigrate":
		return nil, generic("Can't migrate the vm that was paused due to previous migration")
	}
	m.failure, m.sent, m.proceed = "", 0, make(chan struct{})
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
	s.setMigration(migrationDevice)
	s.wakeMigration()
	return nil, nil
}

func (s *Server) migrateCancel(*monitor, arguments) (any, error) {
	m := &s.machine.migration
	switch m.status {
	case migrationSetup, migrationActive, migrationPreSwitchover:
		s.setMigration(migrationCanceling)
		if m.conn != nil {
			_ = m.conn.Close()
		}
		s.wakeMigration()
	}
	return nil, nil
}

// deviceState is what comes after the memory.
type deviceState struct {
	RunState string `json:"runState"`
}

// memorySize comes before it.
type memorySize struct {
	Bytes int64 `json:"bytes"`
}

// send is the source of a migration.
func (s *Server) send(path string) {
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.giveUp(fmt.Sprintf("Failed to connect to '%s': %v", path, errors.Unwrap(err)))
		return
	}
	defer func() { _ = conn.Close() }()
	m := &s.machine.migration
	m.conn = conn
	if m.status != migrationSetup || s.exited {
		s.giveUp("")
		return
	}
	s.setMigration(migrationActive)
	if err := s.sendMemory(conn); err != nil || m.status != migrationActive || m.failure != "" {
		s.giveUp(message(err))
		return
	}
	s.stopForSwitchover()
	if err := s.sendState(conn); err != nil || m.status != migrationDevice {
		s.giveUp(message(err))
		return
	}
	s.machine.runState = "postmigrate"
	s.setMigration(migrationCompleted)
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unlocked does what may take its time without s.mu.
func (s *Server) unlocked(do func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return do()
}

// sendMemory sends the guest's memory, and goes on until the guest changes no more than can be
// sent.
func (s *Server) sendMemory(conn net.Conn) error {
	m := &s.machine.migration
	total, held, proceed := m.memory, m.held, m.proceed
	return s.unlocked(func() error {
		if err := json.NewEncoder(conn).Encode(memorySize{total}); err != nil {
			return err
		}
		page := make([]byte, 64<<10)
		for sent := int64(0); sent < total; {
			n, err := conn.Write(page[:min(int64(len(page)), total-sent)])
			if err != nil {
				return err
			}
			sent += int64(n)
			s.mu.Lock()
			m.sent = sent
			s.mu.Unlock()
		}
		if held == nil {
			return nil
		}
		gone := make(chan struct{})
		go func() { // a target that ends is noticed, as QEMU's next page would
			defer close(gone)
			_, _ = conn.Read(make([]byte, 1))
		}()
		select {
		case <-held:
			// Nothing is read before the state has been sent: the read waits for the end of
			// this connection, and is taken back.
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			<-gone
			return conn.SetReadDeadline(time.Time{})
		case <-proceed:
			return nil
		case <-gone:
			return errors.New("broken pipe")
		}
	})
}

// stopForSwitchover stops the guest, and waits if the source is to wait then. The caller holds
// s.mu.
func (s *Server) stopForSwitchover() {
	m := &s.machine.migration
	if m.wasRunning = s.machine.running(); m.wasRunning {
		s.emit("STOP", nil)
	}
	state := s.machine.runState
	s.machine.runState = "finish-migrate"
	m.state = state
	if !m.capabilities["pause-before-switchover"] {
		s.setMigration(migrationDevice)
		return
	}
	proceed := m.proceed
	s.setMigration(migrationPreSwitchover)
	_ = s.unlocked(func() error { <-proceed; return nil })
}

// sendState sends the devices' state, and waits until the target has it. The caller holds s.mu.
func (s *Server) sendState(conn net.Conn) error {
	m := &s.machine.migration
	if m.status != migrationDevice || m.failure != "" {
		return nil
	}
	state := deviceState{m.state}
	return s.unlocked(func() error {
		if err := json.NewEncoder(conn).Encode(state); err != nil {
			return err
		}
		var done deviceState
		return json.NewDecoder(conn).Decode(&done)
	})
}

// giveUp ends a source's migration that was canceled or has failed. The caller holds s.mu.
func (s *Server) giveUp(reason string) {
	m := &s.machine.migration
	m.proceed = nil
	if s.exited {
		return
	}
	canceled := m.status == migrationCanceling
	if !canceled {
		if m.failure == "" {
			m.failure = reason
		}
		s.setMigration(migrationFailed)
	}
	if s.machine.runState == "finish-migrate" {
		s.machine.runState = "postmigrate"
		if m.wasRunning {
			s.machine.runState = "running"
			s.emit("RESUME", nil)
		}
	}
	if canceled {
		s.setMigration(migrationCanceled)
	}
}

// receive is the target of a migration.
func (s *Server) receive(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	s.machine.migration.conn = conn
	s.setMigration(migrationActive)
	s.mu.Unlock()
	state, err := takeState(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.machine.migration.failure != "" || s.exited {
		s.machine.migration.status = migrationFailed
		s.exit() // QEMU's exit code is 1
		return
	}
	s.machine.runState = state.RunState
	if state.RunState == "running" {
		s.machine.runState = "paused" // -S
	}
	s.setMigration(migrationCompleted)
	_ = s.unlocked(func() error { return json.NewEncoder(conn).Encode(deviceState{}) })
}

// takeState reads what send writes.
func takeState(conn net.Conn) (deviceState, error) {
	in := bufio.NewReader(conn)
	var size memorySize
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &size)
	}
	if err != nil {
		return deviceState{}, err
	}
	if _, err := io.CopyN(io.Discard, in, size.Bytes); err != nil {
		return deviceState{}, err
	}
	var state deviceState
	line, err = in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &state)
	}
	return state, err
}
