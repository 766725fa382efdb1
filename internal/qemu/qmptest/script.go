package qmptest

import "slices"

// RunState returns the guest's run state.
func (s *Server) RunState() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.runState
}

// SetRunState sets the run state without an event.
func (s *Server) SetRunState(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.runState = state
}

// EnterRunState sets the run state and sends the event.
func (s *Server) EnterRunState(state, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.runState = state
	s.emit(event, nil)
}

// FailDisk stops the guest by a disk's error: "nospace" or "failed".
func (s *Server) FailDisk(device, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.machine.devices[device]; d != nil {
		d.ioStatus = status
	}
	s.machine.runState = "io-error"
	s.emit("BLOCK_IO_ERROR", map[string]any{"device": "", "action": "stop", "nospace": status == "nospace"})
	s.emit("STOP", nil)
}

// OpenAgent makes the guest's agent open or close its port.
func (s *Server) OpenAgent(open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.agentOpen = open
	s.emit("VSERPORT_CHANGE", map[string]any{"id": AgentPort, "open": open})
}

// LinkUp reports whether Netdev's link is on.
func (s *Server) LinkUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.machine.netdevs[Netdev].down
}

// Release makes the guest release a requested PCI device.
func (s *Server) Release(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.machine.devices[device]; d != nil && d.leaving {
		s.deleted(device)
	}
}

// Refuse makes the guest refuse to release a PCI device.
func (s *Server) Refuse(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.machine.devices[device]; d != nil {
		d.leaving = false
	}
	s.emit("DEVICE_UNPLUG_GUEST_ERROR", map[string]any{"device": device, "path": "/machine/peripheral/" + device})
}

// Lock makes the guest lock or unlock a drive's tray.
func (s *Server) Lock(drive string, locked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.devices[drive].locked = locked
}

// AddObject adds an object, as -object does.
func (s *Server) AddObject(kind, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.objects[id] = kind
}

// HasObject reports whether the object exists.
func (s *Server) HasObject(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.machine.objects[id]
	return has
}

// AddDisk adds a disk, as -blockdev and -device do.
func (s *Server) AddDisk(id string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.addNode("n-"+id, &node{driver: "null-co", size: size})
	s.machine.devices[id] = &device{driver: "virtio-blk-pci", node: "n-" + id, pci: true, ioStatus: "ok"}
}

// AddNode adds a block node, as -blockdev does.
func (s *Server) AddNode(name string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.addNode(name, &node{driver: "null-co", size: size})
}

// NodeSize returns a block node's size, 0 without one.
func (s *Server) NodeSize(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.machine.nodes[name]; n != nil {
		return n.size
	}
	return 0
}

// HasDevice reports whether the device exists.
func (s *Server) HasDevice(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.devices[id] != nil
}

// BootIndex returns a device's boot index, 0 if none was set.
func (s *Server) BootIndex(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.machine.devices[id]; d != nil {
		return d.bootIndex
	}
	return 0
}

// Executed returns how often a command ran.
func (s *Server) Executed(command string) int {
	n := 0
	for _, c := range s.Commands() {
		if c == command {
			n++
		}
	}
	return n
}

func ids[T any](of map[string]T) []string {
	list := make([]string, 0, len(of))
	for id := range of {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}
