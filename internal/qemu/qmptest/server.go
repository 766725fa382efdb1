package qmptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// Answer answers a command with a result, or a refusal (a *qmp.Error keeps its class).
type Answer func(arguments json.RawMessage) (any, error)

// Server is a QEMU for tests. It starts as with -S, with the machine of Arguments. Its methods may be called from
// several goroutines.
type Server struct {
	t testing.TB

	mu       sync.Mutex
	machine  *machine
	answers  map[string]Answer
	commands []string
	// afterwards are the current command's effects after its answer.
	afterwards []func()
	monitors   map[*monitor]bool
	exited     bool
	// ended is closed when exited is set.
	ended chan struct{}
	// inside and outside are the paths of the folder of sockets in QEMU and in the test.
	inside, outside string

	serving   sync.WaitGroup
	listeners []net.Listener
}

// New starts a Server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{t: t, machine: newMachine(), answers: map[string]Answer{}, monitors: map[*monitor]bool{}, ended: make(chan struct{})}
	t.Cleanup(func() {
		s.Exit()
		s.serving.Wait()
		s.machine.close()
	})
	return s
}

// Dial connects to a new monitor.
func (s *Server) Dial() net.Conn {
	s.t.Helper()
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := net.FileConn(theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		s.t.Fatal(err)
	}
	s.serving.Go(func() { s.serve(conn) })
	return ours
}

// Listen serves a monitor: one connection at a time, as QEMU does.
func (s *Server) Listen(socket string) {
	s.t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.listeners = append(s.listeners, listener)
	s.mu.Unlock()
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serve(conn)
		}
	})
}

// Exit ends QEMU without an event. It can be repeated.
func (s *Server) Exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit()
}

// Ended is closed when QEMU has ended.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// The caller holds s.mu.
func (s *Server) exit() {
	if s.exited {
		return
	}
	s.exited = true
	close(s.ended)
	s.machine.migration.close()
	s.machine.closeMirrors()
	s.wakeMigration()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for m := range s.monitors {
		_ = m.conn.Close()
	}
}

// Override replaces the answer to a command; nil restores it. The Answer runs without s.mu. If it does not
// return, QEMU hangs.
func (s *Server) Override(command string, answer Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer == nil {
		delete(s.answers, command)
		return
	}
	s.answers[command] = answer
}

// Commands returns the commands executed so far, in order, without handshakes.
func (s *Server) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

// Emit sends an event to all monitors.
func (s *Server) Emit(name string, data any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(name, data)
}

func (s *Server) emit(name string, data any) {
	now := time.Now()
	event := map[string]any{
		"event":     name,
		"timestamp": map[string]int64{"seconds": now.Unix(), "microseconds": int64(now.Nanosecond() / 1000)},
	}
	if data != nil {
		event["data"] = data
	}
	for m := range s.monitors {
		if m.negotiated {
			m.send(event)
		}
	}
}

type monitor struct {
	conn net.Conn
	// rest is the beginning of the next lines; files came beside it.
	rest  []byte
	files []*os.File
	// No event comes before the handshake.
	negotiated bool
	// outOfBand means that QEMU reads ahead on this monitor, and executes some commands at once. ordinary has the lines of
	// all others, which it executes in their order.
	outOfBand bool
	ordinary  chan []byte
}

// Errors are ignored: the peer may have gone.
func (m *monitor) send(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("qmptest: encoding %v: %v", message, err))
	}
	_, _ = m.conn.Write(append(line, '\n'))
}

func (s *Server) serve(conn net.Conn) {
	m := &monitor{conn: conn}
	defer func() {
		_ = conn.Close()
		for _, f := range m.files {
			_ = f.Close()
		}
	}()
	s.mu.Lock()
	if s.exited {
		s.mu.Unlock()
		return
	}
	s.monitors[m] = true
	m.send(map[string]any{"QMP": map[string]any{
		"version":      map[string]any{"qemu": map[string]int{"major": 7, "minor": 2, "micro": 0}, "package": "qmptest"},
		"capabilities": []string{"oob"},
	}})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.monitors, m)
		m.stopReading()
	}()
	for {
		line, err := m.readLine()
		if err != nil {
			return
		}
		if !s.readAhead(m, line) {
			s.execute(m, line)
		}
	}
}

func (m *monitor) readLine() ([]byte, error) {
	for {
		if line, rest, whole := bytes.Cut(m.rest, []byte("\n")); whole {
			m.rest = append([]byte(nil), rest...)
			return line, nil
		}
		data, rights := make([]byte, 64<<10), make([]byte, syscall.CmsgSpace(4*16))
		socket, ok := m.conn.(*net.UnixConn)
		if !ok {
			return nil, errors.New("the monitor is no unix socket")
		}
		n, nr, _, _, err := socket.ReadMsgUnix(data, rights)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, net.ErrClosed
		}
		m.rest = append(m.rest, data[:n]...)
		if err := m.receiveFiles(rights[:nr]); err != nil {
			return nil, err
		}
	}
}

func (m *monitor) receiveFiles(rights []byte) error {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			m.files = append(m.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return nil
}

func (s *Server) execute(m *monitor, line []byte) {
	var c struct {
		Execute   string          `json:"execute"`
		OutOfBand string          `json:"exec-oob"`
		Arguments json.RawMessage `json:"arguments"`
		ID        json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal(line, &c); err != nil {
		m.send(map[string]any{"error": map[string]string{"class": "GenericError", "desc": "Invalid JSON syntax"}})
		return
	}
	if c.OutOfBand == "" {
		s.awaitMainLoop()
	}
	s.mu.Lock()
	if c.OutOfBand != "" {
		if err := m.outOfBandRefusal(c.OutOfBand); err != nil {
			m.send(reply(c.ID, nil, err))
			s.mu.Unlock()
			return
		}
		c.Execute = c.OutOfBand
	}
	override := s.answers[c.Execute]
	if c.Execute != "qmp_capabilities" {
		s.commands = append(s.commands, c.Execute)
	}
	s.mu.Unlock()
	var result any
	var err error
	if override != nil {
		result, err = override(c.Arguments)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited {
		return // nothing would end a listener that it opens now
	}
	if override == nil {
		result, err = s.answer(m, c.Execute, c.Arguments)
	}
	m.send(reply(c.ID, result, err))
	afterwards := s.afterwards
	s.afterwards = nil
	for _, do := range afterwards {
		do()
	}
}

func reply(id json.RawMessage, result any, err error) map[string]any {
	message := map[string]any{}
	if id != nil {
		message["id"] = id
	}
	if err != nil {
		class, desc := "GenericError", err.Error()
		if refused := (*qmp.Error)(nil); errors.As(err, &refused) {
			class, desc = refused.Class, refused.Desc
		}
		message["error"] = map[string]string{"class": class, "desc": desc}
		return message
	}
	if result == nil {
		result = map[string]any{}
	}
	message["return"] = result
	return message
}
