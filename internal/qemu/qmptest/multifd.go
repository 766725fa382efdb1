package qmptest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
)

// The model opens the connections of multifd, but sends the guest on the main one.

// defaultChannels is QEMU's default.
const defaultChannels = 2

// channels returns the number of a migration's connections beside the main one.
func (m *migration) channels() int {
	if !m.capabilities["multifd"] {
		return 0
	}
	return m.channelParameter()
}

func (m *migration) channelParameter() int {
	n := defaultChannels
	if text := m.parameters["multifd-channels"]; text != nil {
		_ = json.Unmarshal(text, &n) // QEMU's schema refuses anything but a number
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

var errNoChannel = errors.New("Unable to write to socket: Broken pipe") //nolint:staticcheck // QEMU's words

// The target must accept them. The caller holds s.mu.
func (s *Server) dialChannels(path string) error {
	n := s.machine.migration.channels()
	return s.unlocked(func() error {
		for range n {
			conn, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
			if err != nil {
				return err
			}
			s.addChannel(conn)
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				return errNoChannel
			}
		}
		return nil
	})
}

// acceptChannels accepts as many channels as the target's parameter says, and no more.
func (s *Server) acceptChannels(listener net.Listener) error {
	s.mu.Lock()
	n := s.machine.migration.channels()
	s.mu.Unlock()
	for range n {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		s.addChannel(conn)
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
			_ = conn.Close() // one too many
		}
	})
	return nil
}

func (s *Server) addChannel(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited {
		_ = conn.Close()
		return
	}
	s.machine.migration.channelConns = append(s.machine.migration.channelConns, conn)
}
