package qmptest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// A QEMU whose main loop waits for memory of its guest, in a post-copy whose connection has broken, answers no ordinary
// command on any monitor. It still reads, reports events, and executes out-of-band commands.

// outOfBandCommands are those of QEMU that the model has.
var outOfBandCommands = []string{"migrate-recover"}

// maxOrdinary is the number of ordinary commands after which QEMU reads nothing more from a monitor.
const maxOrdinary = 8

// negotiate answers qmp_capabilities.
func (s *Server) negotiate(m *monitor, raw json.RawMessage) {
	var a struct {
		Enable []string `json:"enable"`
	}
	_ = json.Unmarshal(raw, &a) // it may have no arguments
	m.negotiated = true
	if !slices.Contains(a.Enable, "oob") {
		return
	}
	m.outOfBand, m.ordinary = true, make(chan []byte, maxOrdinary-1)
	s.serving.Go(func() {
		for line := range m.ordinary {
			s.execute(m, line)
		}
	})
}

// readAhead queues an ordinary command on a monitor that reads ahead, and reports whether it has.
func (s *Server) readAhead(m *monitor, line []byte) bool {
	s.mu.Lock()
	ahead := m.outOfBand
	s.mu.Unlock()
	if !ahead || bytes.Contains(line, []byte(`"exec-oob"`)) {
		return false
	}
	select {
	case m.ordinary <- line:
	case <-s.ended:
	}
	return true
}

// stopReading ends the queue of a monitor that has ended.
func (m *monitor) stopReading() {
	if m.ordinary != nil {
		close(m.ordinary)
	}
}

// outOfBandRefusal is QEMU's, nil if it executes the command.
func (m *monitor) outOfBandRefusal(command string) error {
	switch {
	case !m.outOfBand:
		return generic("QMP input member 'exec-oob' is unexpected")
	case commands[command] == nil:
		return refusal("CommandNotFound", "The command %s has not been found", command)
	case !slices.Contains(outOfBandCommands, command):
		return generic("The command %s does not support OOB", command)
	}
	return nil
}

// NeedMemory makes QEMU's main loop wait for memory of its guest from each break of its post-copy's connection.
func (s *Server) NeedMemory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.needsMemory = true
	s.awaitMemory()
}

// The caller holds s.mu.
func (s *Server) awaitMemory() {
	if s.machine.migration.status == migrationPostCopyPaused && s.machine.stuck == nil {
		s.machine.stuck = make(chan struct{})
	}
}

// memoryArrives ends that wait. The caller holds s.mu.
func (s *Server) memoryArrives() {
	if s.machine.stuck != nil {
		close(s.machine.stuck)
		s.machine.stuck = nil
	}
}

func (s *Server) awaitMainLoop() {
	s.mu.Lock()
	stuck := s.machine.stuck
	s.mu.Unlock()
	if stuck == nil {
		return
	}
	select {
	case <-stuck:
	case <-s.ended:
	}
}

// humanMonitor has the one command that reads the guest's memory, in QEMU's main loop.
func (s *Server) humanMonitor(_ *monitor, a arguments) (any, error) {
	if !strings.HasPrefix(a.CommandLine, "xp") {
		return nil, generic("the model has no human command %q", a.CommandLine)
	}
	s.awaitMemory()
	_ = s.unlocked(func() error { s.awaitMainLoop(); return nil })
	return "0000000001000000: 0x00000000\r\n", nil
}
