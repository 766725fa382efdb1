package qmptest

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// Statuses of a job.
const (
	jobRunning   = "running"
	jobReady     = "ready"
	jobConcluded = "concluded"
)

// exports are the block nodes to which others write by NBD.
type exports struct {
	listener net.Listener
	conns    map[net.Conn]bool
	// nodes are the block nodes, by the names of their exports, which are also their IDs.
	nodes map[string]string
}

// job copies a block node. The model's content of a node is a number, which each of the guest's writes changes.
type job struct {
	id, node, target string
	status, failure  string
	done, total      int64
}

// nbdMessage replaces NBD: first the name of an export, answered with its size, then contents.
type nbdMessage struct {
	Export  string `json:"export,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Content int64  `json:"content,omitempty"`
	Refusal string `json:"refusal,omitempty"`
}

const nbdPatience = 10 * time.Second

// HoldMirrors keeps jobs that copy disks from becoming ready until they are released.
func (s *Server) HoldMirrors() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.machine.mirrorsHeld = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.machine.mirrorsHeld == held {
			s.machine.mirrorsHeld = nil
			close(held)
		}
	}
}

// Write makes the guest write to the disk of a block node. It returns when the node's copy, if any, has the write, too.
func (s *Server) Write(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.machine.nodes[node]
	n.content++
	for _, j := range s.machine.jobs {
		if j.node == node && j.status == jobReady {
			j.total++
			if err := s.copyContent(j); err != nil {
				s.conclude(j, "Input/output error")
				continue
			}
			j.done++
		}
	}
}

// Content returns a node's number of writes.
func (s *Server) Content(node string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.nodes[node].content
}

// Exports returns the exports' names.
func (s *Server) Exports() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ids(s.machine.exports.nodes)
}

// Jobs returns the jobs' statuses by name.
func (s *Server) Jobs() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := map[string]string{}
	for _, j := range s.machine.jobs {
		statuses[j.id] = j.status
	}
	return statuses
}

func (e *exports) close() {
	if e.listener != nil {
		_ = e.listener.Close()
	}
	for conn := range e.conns {
		_ = conn.Close()
	}
	e.listener = nil
}

// The caller holds s.mu.
func (m *machine) closeMirrors() {
	m.exports.close()
	for _, n := range m.nodes {
		if n.nbd != nil {
			_ = n.nbd.Close()
		}
	}
}

func (s *Server) outsidePath(path string) string {
	if rest, ok := strings.CutPrefix(path, s.inside); ok && s.inside != "" {
		return s.outside + rest
	}
	return path
}

func (s *Server) nbdStart(_ *monitor, a arguments) (any, error) {
	e := &s.machine.exports
	if e.listener != nil {
		return nil, generic("NBD server already running")
	}
	var address struct {
		Addr struct {
			Data struct{ Path string }
		}
	}
	if err := json.Unmarshal(a.raw, &address); err != nil {
		return nil, err
	}
	path := s.outsidePath(address.Addr.Data.Path)
	_ = os.Remove(path) // as QEMU does
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, generic("Failed to bind socket to %s: %v", path, err)
	}
	e.listener, e.conns = listener, map[net.Conn]bool{}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() { s.serveExport(listener, conn) })
		}
	})
	return nil, nil
}

func (s *Server) nbdStop(*monitor, arguments) (any, error) {
	e := &s.machine.exports
	if e.listener == nil {
		return nil, generic("NBD server not running")
	}
	e.close()
	for _, id := range ids(e.nodes) {
		delete(e.nodes, id)
		s.emit("BLOCK_EXPORT_DELETED", map[string]any{"id": id})
	}
	return nil, nil
}

func (s *Server) exportAdd(_ *monitor, a arguments) (any, error) {
	e := &s.machine.exports
	switch {
	case e.nodes[a.ID] != "":
		return nil, generic("Block export id '%s' is already in use", a.ID)
	case s.machine.nodes[a.Node] == nil:
		return nil, generic("Cannot find device='' nor node-name='%s'", a.Node)
	case e.listener == nil:
		return nil, generic("NBD server not running")
	}
	if e.nodes == nil {
		e.nodes = map[string]string{}
	}
	e.nodes[a.ID] = a.Node
	return nil, nil
}

func (s *Server) queryExports(*monitor, arguments) (any, error) {
	list := []map[string]any{}
	for _, id := range ids(s.machine.exports.nodes) {
		list = append(list, map[string]any{"id": id, "type": "nbd", "node-name": s.machine.exports.nodes[id], "shutting-down": false})
	}
	return list, nil
}

func (s *Server) serveExport(listener net.Listener, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	e := &s.machine.exports
	if s.exited || e.listener != listener {
		s.mu.Unlock()
		return
	}
	e.conns[conn] = true
	s.mu.Unlock()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var name string
	for {
		var m nbdMessage
		if in.Decode(&m) != nil {
			return
		}
		s.mu.Lock()
		if m.Export != "" {
			name = m.Export
		}
		var answer nbdMessage
		if n := s.machine.nodes[e.nodes[name]]; n == nil {
			answer.Refusal = "Requested export not available"
		} else {
			answer.Size = n.size
			if m.Export == "" {
				n.content = m.Content
			}
		}
		s.mu.Unlock()
		if out.Encode(answer) != nil {
			return
		}
	}
}

// As in QEMU, dialing blocks everything else.
func (s *Server) dialExport(a arguments) (*node, error) {
	var server struct{ Server struct{ Path string } }
	if err := json.Unmarshal(a.raw, &server); err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", s.outsidePath(server.Server.Path), nbdPatience)
	if err != nil {
		return nil, generic("Failed to connect to '%s': %v", server.Server.Path, errors.Unwrap(err))
	}
	n := &node{driver: a.Driver, nbd: conn}
	answer, err := n.exchangeNBD(nbdMessage{Export: a.Export})
	switch {
	case err != nil:
		_ = conn.Close()
		return nil, generic("Failed to read initial magic: Unexpected end-of-file before all data were read")
	case answer.Refusal != "":
		_ = conn.Close()
		return nil, generic("%s", answer.Refusal)
	}
	n.size = answer.Size
	return n, nil
}

func (n *node) exchangeNBD(m nbdMessage) (answer nbdMessage, err error) {
	_ = n.nbd.SetDeadline(time.Now().Add(nbdPatience))
	if err := json.NewEncoder(n.nbd).Encode(m); err != nil {
		return answer, err
	}
	err = json.NewDecoder(n.nbd).Decode(&answer)
	return answer, err
}

func (s *Server) mirror(_ *monitor, a arguments) (any, error) {
	m := s.machine
	switch {
	case m.nodes[a.Device] == nil:
		return nil, generic("Cannot find device='%s' nor node-name='%s'", a.Device, a.Device)
	case m.nodes[a.Target] == nil:
		return nil, generic("Cannot find device='%s' nor node-name='%s'", a.Target, a.Target)
	case m.jobOf(func(j *job) bool { return j.status != jobConcluded && j.node == a.Device }) != nil:
		return nil, generic("Need a root block node")
	case m.job(a.JobID) != nil:
		return nil, generic("Job ID '%s' already in use", a.JobID)
	}
	j := &job{id: a.JobID, node: a.Device, target: a.Target, total: m.nodes[a.Device].size}
	m.jobs = append(m.jobs, j)
	s.setJob(j, "created")
	s.setJob(j, jobRunning)
	held := m.mirrorsHeld
	s.serving.Go(func() {
		if held != nil {
			select {
			case <-held:
			case <-s.ended:
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if j.status != jobRunning || s.exited {
			return
		}
		if err := s.copyContent(j); err != nil {
			s.conclude(j, "Input/output error")
			return
		}
		j.done = j.total
		s.setJob(j, jobReady)
		s.emit("BLOCK_JOB_READY", map[string]any{"device": j.id, "type": "mirror", "len": j.total, "offset": j.done, "speed": 0})
	})
	return nil, nil
}

// The caller holds s.mu.
func (s *Server) copyContent(j *job) error {
	from, to := s.machine.nodes[j.node], s.machine.nodes[j.target]
	if to.size != from.size {
		return generic("Source and target image have different sizes")
	}
	for to.file != "" {
		to = s.machine.nodes[to.file]
	}
	if to.nbd == nil {
		to.content = from.content
		return nil
	}
	answer, err := to.exchangeNBD(nbdMessage{Content: from.content})
	if err == nil && answer.Refusal != "" {
		err = errors.New(answer.Refusal)
	}
	return err
}

func (s *Server) setJob(j *job, status string) {
	j.status = status
	s.emit("JOB_STATUS_CHANGE", map[string]any{"id": j.id, "status": status})
}

// The job stays in the list.
func (s *Server) conclude(j *job, failure string) {
	if j.failure = failure; failure != "" {
		s.setJob(j, "aborting")
	}
	event, data := "BLOCK_JOB_COMPLETED", map[string]any{"device": j.id, "type": "mirror", "len": j.total, "offset": j.done, "speed": 0}
	if failure != "" {
		data["error"] = failure
	}
	if failure == jobCanceled {
		event = "BLOCK_JOB_CANCELLED" //nolint:misspell // QEMU's word
		delete(data, "error")
	}
	s.emit(event, data)
	s.setJob(j, jobConcluded)
}

const jobCanceled = "Operation canceled"

func (m *machine) jobOf(is func(*job) bool) *job {
	if i := slices.IndexFunc(m.jobs, is); i >= 0 {
		return m.jobs[i]
	}
	return nil
}

func (m *machine) job(id string) *job { return m.jobOf(func(j *job) bool { return j.id == id }) }

func (m *machine) jobUses(name string) bool {
	return m.jobOf(func(j *job) bool { return j.status != jobConcluded && (j.node == name || j.target == name) }) != nil
}

// A ready job, if not ended by force, ends with all writes copied.
func (s *Server) cancelJob(_ *monitor, a arguments) (any, error) {
	j := s.machine.job(a.Device)
	switch {
	case j == nil:
		return nil, refusal("DeviceNotActive", "Block job '%s' not found", a.Device)
	case j.status == jobConcluded:
		return nil, generic("Job '%s' in state 'concluded' cannot accept command verb 'cancel'", j.id)
	}
	s.afterwards = append(s.afterwards, func() {
		switch {
		case j.status == jobConcluded:
		case a.Force || j.status != jobReady:
			s.conclude(j, jobCanceled)
		case s.copyContent(j) != nil:
			s.conclude(j, "Input/output error")
		default:
			s.conclude(j, "")
		}
	})
	return nil, nil
}

func (s *Server) dismissJob(_ *monitor, a arguments) (any, error) {
	j := s.machine.job(a.ID)
	switch {
	case j == nil:
		return nil, generic("Job not found")
	case j.status != jobConcluded:
		return nil, generic("Job '%s' in state '%s' cannot accept command verb 'dismiss'", j.id, j.status)
	}
	s.machine.jobs = slices.DeleteFunc(s.machine.jobs, func(x *job) bool { return x == j })
	return nil, nil
}

func (s *Server) queryJobs(*monitor, arguments) (any, error) {
	list := []map[string]any{}
	for _, j := range s.machine.jobs {
		entry := map[string]any{"id": j.id, "type": "mirror", "status": j.status, "current-progress": j.done, "total-progress": j.total}
		if j.failure != "" {
			entry["error"] = j.failure
		}
		list = append(list, entry)
	}
	return list, nil
}
