package qmptest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
)

// The connections of multifd: the model makes them, and sends the guest on the main one.

// defaultChannels is QEMU's.
const defaultChannels = 2

// channels is how many connections a migration has beside its main one.
func (m *migration) channels() int {
	if !m.capabilities["multifd"] {
		return 0
	}
	return m.channelParameter()
}

func (m *migration) channelParameter() int {
	n := defaultChannels
	if text := m.parameters["multifd-channels"]; text != nil {
		_ = json.Unmarshal(text, &n) // what is no number is refused by QEMU's schema
	}
	return n
}

func (s *Server) queryCapabilities(*monitor, arguments) (any, error) {
	var list []map[string]any
	for _, name := range []string{"events", "return-path", "late-block-activate", "pause-before-switchover", "auto-converge", "multifd", "postcopy-ram"} {
		list = append(list, map[string]any{"capability": name, "state": s.machine.migration.capabilities[name]})
	}
	return list, nil
}

func (s *Server) queryParameters(*monitor, arguments) (any, error) {
	return map[string]any{"multifd-channels": s.machine.migration.channelParameter()}, nil
}

// errNoChannel is of a source that has more channels than its target.
var errNoChannel = errors.New("Unable to write to socket: Broken pipe") //nolint:staticcheck // QEMU's words

// dialChannels makes a source's channels, which its target takes. The caller holds s.mu.
func (s *Server) dialChannels(path string) error {
	n := s.machine.migration.channels()
	return s.unlocked(func() error {
		for range n {
			conn, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
			if err != nil {
				return err
			}
			s.keep(conn)
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				return errNoChannel
			}
		}
		return nil
	})
}

// acceptChannels takes as many as a target was set to, and no more.
func (s *Server) acceptChannels(listener net.Listener) error {
	s.mu.Lock()
	n := s.machine.migration.channels()
	s.mu.Unlock()
	for range n {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		s.keep(conn)
		if _, err := conn.Write([]byte{0}); err != nil {
			return err
		}
	}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // it is one too many
		}
	})
	return nil
}

// keep has a connection end with QEMU.
func (s *Server) keep(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited {
		_ = conn.Close()
		return
	}
	s.machine.migration.channelConns = append(s.machine.migration.channelConns, conn)
}
