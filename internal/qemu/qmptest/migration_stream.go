package qmptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// deviceState follows the memory in the stream.
type deviceState struct {
	RunState string `json:"runState"`
	PostCopy bool   `json:"postCopy"`
	Memory   memory `json:"memory"`
}

// memorySize precedes it.
type memorySize struct {
	Bytes int64 `json:"bytes"`
}

func (s *Server) send(path string) {
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.endMigration(fmt.Sprintf("Failed to connect to '%s': %v", path, errors.Unwrap(err)))
		return
	}
	defer func() { _ = conn.Close() }()
	m := &s.machine.migration
	m.conn = conn
	if m.status != migrationSetup || s.exited {
		s.endMigration("")
		return
	}
	s.setMigration(migrationActive)
	if err := s.dialChannels(path); err != nil {
		s.endMigration(message(err))
		return
	}
	if err := s.sendMemory(conn); err != nil || m.status != migrationActive || m.failure != "" {
		s.endMigration(message(err))
		return
	}
	s.stopForSwitchover()
	if err := s.sendState(conn); err != nil || m.status != migrationDevice && m.status != migrationPostCopyActive {
		s.endMigration(message(err))
		return
	}
	if m.status == migrationPostCopyActive && !s.sendAfterwards(conn) {
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

// unlocked runs do without s.mu, for slow operations.
func (s *Server) unlocked(do func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return do()
}

// sendMemory returns when the guest changes no more than can be sent.
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
		go func() { // notices the target's end, as QEMU's next page would
			defer close(gone)
			_, _ = conn.Read(make([]byte, 1))
		}()
		select {
		case <-held:
			// The read above waits for the end of this connection, and is interrupted: nothing must be read
			// before the state is sent.
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			<-gone
			return conn.SetReadDeadline(time.Time{})
		case <-m.hurry:
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

// stopForSwitchover stops the guest, and waits if pause-before-switchover is on. The caller holds s.mu.
func (s *Server) stopForSwitchover() {
	m := &s.machine.migration
	if m.wasRunning = s.machine.running(); m.wasRunning {
		s.emit("STOP", nil)
	}
	state := s.machine.runState
	s.machine.runState = "finish-migrate"
	m.state = state
	if !m.capabilities["pause-before-switchover"] {
		s.setMigration(m.handover())
		return
	}
	proceed := m.proceed
	s.setMigration(migrationPreSwitchover)
	_ = s.unlocked(func() error { <-proceed; return nil })
}

// sendState waits until the target has the state, but in post-copy. The caller holds s.mu.
func (s *Server) sendState(conn net.Conn) error {
	m := &s.machine.migration
	if m.status != migrationDevice && m.status != migrationPostCopyActive || m.failure != "" {
		return nil
	}
	state := deviceState{m.state, m.status == migrationPostCopyActive, s.machine.memory}
	return s.unlocked(func() error {
		if err := json.NewEncoder(conn).Encode(state); err != nil || state.PostCopy {
			return err
		}
		var done deviceState
		return json.NewDecoder(conn).Decode(&done)
	})
}

// The caller holds s.mu.
func (s *Server) endMigration(reason string) {
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
		if m.wasRunning && !m.postCopy.asked {
			s.machine.runState = "running"
			s.emit("RESUME", nil)
		}
	}
	if canceled {
		s.setMigration(migrationCanceled)
	}
}

func (s *Server) receive(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	if s.exited { // and has closed the connections that it knew
		s.mu.Unlock()
		return
	}
	s.machine.migration.conn = conn
	s.setMigration(migrationActive)
	s.mu.Unlock()
	in := bufio.NewReader(conn)
	state, err := takeState(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.machine.migration.failure != "" || s.exited {
		s.machine.migration.status = migrationFailed
		s.exit() // QEMU's exit code is 1
		return
	}
	s.machine.runState, s.machine.memory = state.RunState, state.Memory
	if state.RunState == "running" {
		s.machine.runState = "paused" // -S
	}
	if state.PostCopy {
		s.setMigration(migrationPostCopyActive)
		s.receiveAfterwards(conn, in)
		return
	}
	s.setMigration(migrationCompleted)
	_ = s.unlocked(func() error { return json.NewEncoder(conn).Encode(deviceState{}) })
}

func takeState(in *bufio.Reader) (deviceState, error) {
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
