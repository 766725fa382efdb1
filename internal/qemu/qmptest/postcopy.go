package qmptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
)

// Post-copy: the guest's state goes to the target, which may run it, and its memory follows.

const (
	migrationPostCopyActive  = "postcopy-active"
	migrationPostCopyPaused  = "postcopy-paused"
	migrationPostCopyRecover = "postcopy-recover"
)

type postCopy struct {
	// asked means that the source was asked to switch to it. sent is the memory sent after the guest, in bytes.
	asked bool
	sent  int64
	// held keeps the last page back until it is closed.
	held chan struct{}
	// again receives a connection for the rest while next waits for one.
	again chan net.Conn
}

// endOfStream is QEMU's: the footer of the memory's section, and the end. The target answers it when it has everything.
var endOfStream = []byte{0x7e, 0, 0, 0, 2, 0}

// shut returns QEMU's last message on the return path.
func shut(result byte) []byte { return []byte{0, 1, 0, 4, 0, 0, 0, result} }

var errRejected = errors.New("Sibling indicated error 1") //nolint:staticcheck // QEMU's words

func readShut(conn net.Conn) error {
	message := make([]byte, len(shut(0)))
	if _, err := io.ReadFull(conn, message); err != nil {
		return err
	}
	if !bytes.Equal(message, shut(0)) {
		return errRejected
	}
	return nil
}

// RefusePostCopy makes the machine one without userfaultfd.
func (s *Server) RefusePostCopy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.migration.noPostCopy = true
}

// slowPostCopy is the bandwidth below which a post-copy never completes.
const slowPostCopy = 1 << 20

// limitPostCopy holds or releases the memory that follows a guest. The caller holds s.mu.
func (m *migration) limitPostCopy(bandwidth json.RawMessage) {
	var n int64
	if bandwidth == nil || json.Unmarshal(bandwidth, &n) != nil {
		return
	}
	switch held := m.postCopy.held; {
	case n > 0 && n < slowPostCopy && held == nil:
		m.postCopy.held = make(chan struct{})
	case n >= slowPostCopy && held != nil && m.postCopy.sent > 0:
		m.postCopy.held = nil
		close(held)
	}
}

// HoldPostCopy keeps the memory that follows the guest from completing until it is released.
func (s *Server) HoldPostCopy() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.machine.migration.postCopy.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.machine.migration.postCopy.held == held {
			s.machine.migration.postCopy.held = nil
			close(held)
		}
	}
}

// CutMigration closes the connection of a migration.
func (s *Server) CutMigration() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn := s.machine.migration.conn; conn != nil {
		_ = conn.Close()
	}
}

// handover returns the status in which a source sends its guest's state.
func (m *migration) handover() string {
	if m.postCopy.asked {
		return migrationPostCopyActive
	}
	return migrationDevice
}

func (s *Server) startPostCopy(*monitor, arguments) (any, error) {
	m := &s.machine.migration
	switch {
	case !m.capabilities["postcopy-ram"]:
		return nil, generic("Enable postcopy with migrate_set_capability before the start of migration")
	case m.status == "":
		return nil, generic("Postcopy must be started after migration has been started")
	}
	if !m.postCopy.asked && m.hurry != nil {
		m.postCopy.asked = true
		close(m.hurry)
	}
	return nil, nil
}

// sendAfterwards reports whether the target has all memory. The caller holds s.mu.
func (s *Server) sendAfterwards(conn net.Conn) bool {
	m := &s.machine.migration
	for {
		m.postCopy.sent += 4096
		held := m.postCopy.held
		err := s.unlocked(func() error { return sendLast(conn, held) })
		_ = conn.Close()
		if err == nil {
			return true
		}
		switch {
		case s.exited:
			return false
		case errors.Is(err, errRejected):
			s.endMigration(err.Error())
			return false
		}
		s.setMigration(migrationPostCopyPaused)
		if conn = s.awaitRecovery(); conn == nil {
			return false
		}
		s.setMigration(migrationPostCopyActive)
	}
}

func sendLast(conn net.Conn, held chan struct{}) error {
	said := make(chan error, 1)
	go func() { said <- readShut(conn) }() // notices the target's end, too, as QEMU's next page would
	if held != nil {
		select {
		case err := <-said:
			if errors.Is(err, errRejected) {
				// QEMU ends the stream that it has not sent to its end.
				err = io.ErrUnexpectedEOF
			}
			return err
		case <-held:
		}
	}
	if _, err := conn.Write(endOfStream); err != nil {
		return err
	}
	return <-said
}

// in has the first connection's rest. The caller holds s.mu.
func (s *Server) receiveAfterwards(conn net.Conn, in io.Reader) {
	for {
		err := s.unlocked(func() error {
			_, err := io.ReadFull(in, make([]byte, len(endOfStream)))
			return err
		})
		if s.exited {
			return
		}
		if err == nil {
			s.setMigration(migrationCompleted)
			_ = s.unlocked(func() error {
				_, err := conn.Write(shut(0))
				return err
			})
			_ = conn.Close()
			return
		}
		_ = conn.Close()
		s.setMigration(migrationPostCopyPaused)
		if conn = s.awaitRecovery(); conn == nil {
			return
		}
		in = conn
		s.setMigration(migrationPostCopyActive)
	}
}

// awaitRecovery waits for a connection to recover a post-copy, and returns nil if QEMU ends before. The caller holds
// s.mu.
func (s *Server) awaitRecovery() (conn net.Conn) {
	again := make(chan net.Conn)
	m := &s.machine.migration
	m.postCopy.again = again
	_ = s.unlocked(func() error {
		select {
		case conn = <-again:
		case <-s.ended:
		}
		return nil
	})
	m.postCopy.again = nil
	if conn != nil && s.exited {
		_ = conn.Close()
		return nil
	}
	if conn != nil {
		m.conn = conn
		s.setMigration(migrationPostCopyRecover)
	}
	return conn
}

func (s *Server) passRecovery(conn net.Conn) {
	s.mu.Lock()
	again := s.machine.migration.postCopy.again
	s.mu.Unlock()
	select {
	case again <- conn:
	case <-s.ended:
		_ = conn.Close()
	}
}

func (s *Server) resume(path string) error {
	if s.machine.migration.status != migrationPostCopyPaused {
		return generic("Cannot resume if there is no paused migration")
	}
	s.serving.Go(func() {
		if conn, err := net.Dial("unix", path); err == nil {
			s.passRecovery(conn)
		}
	})
	return nil
}

func (s *Server) migrateRecover(_ *monitor, a arguments) (any, error) {
	m := &s.machine.migration
	if m.status != migrationPostCopyPaused {
		return nil, generic("Migrate recover can only be run when postcopy is paused.")
	}
	path, err := s.socketOf(a.URI)
	if err != nil {
		return nil, err
	}
	if m.listener != nil {
		_ = m.listener.Close()
	}
	_ = os.Remove(path) // as QEMU does
	if m.listener, err = net.Listen("unix", path); err != nil {
		return nil, generic("Failed to bind socket to %s: %v", path, err)
	}
	s.reportMigration(migrationSetup)
	listener := m.listener
	s.serving.Go(func() {
		if conn, err := listener.Accept(); err == nil {
			s.passRecovery(conn)
		}
	})
	return nil, nil
}
