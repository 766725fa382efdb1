package qmptest

type netdev struct {
	// device is the interface's, "" for none.
	device string
	down   bool
}

func (s *Server) netdevAdd(_ *monitor, a arguments) (any, error) {
	if s.machine.netdevs[a.ID] != nil {
		return nil, generic("Duplicate ID '%s'", a.ID)
	}
	s.machine.netdevs[a.ID] = &netdev{}
	return nil, nil
}

func (s *Server) netdevDel(_ *monitor, a arguments) (any, error) {
	if s.machine.netdevs[a.ID] == nil {
		return nil, refusal("DeviceNotFound", "Device '%s' not found", a.ID)
	}
	delete(s.machine.netdevs, a.ID)
	return nil, nil
}

func (s *Server) plugNIC(a arguments) (any, error) {
	switch backend := s.machine.netdevs[a.Netdev]; {
	case s.machine.devices[a.ID] != nil:
		return nil, generic("Duplicate device ID '%s'", a.ID)
	case backend == nil:
		return nil, generic("Property '%s.netdev' can't find value '%s'", a.Driver, a.Netdev)
	case backend.device != "" && s.machine.devices[backend.device] != nil:
		return nil, generic("Property '%s.netdev' can't take value '%s', it's in use", a.Driver, a.Netdev)
	default:
		backend.device = a.ID
	}
	s.machine.devices[a.ID] = &device{driver: a.Driver, pci: isVirtio(a.Driver)}
	return nil, nil
}

const passThroughDriver = "vfio-pci"

func (s *Server) passThrough(a arguments) error {
	switch {
	case s.machine.devices[a.ID] != nil:
		return generic("Duplicate device ID '%s'", a.ID)
	case !s.machine.host[a.Host]:
		return generic("vfio /sys/bus/pci/devices/%s: no such host device: No such file or directory", a.Host)
	}
	s.machine.devices[a.ID] = &device{driver: a.Driver, pci: true}
	return nil
}

// HasHostDevice adds a device that can be passed through.
func (s *Server) HasHostDevice(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine.host == nil {
		s.machine.host = map[string]bool{}
	}
	s.machine.host[address] = true
}

func (s *Server) setLink(_ *monitor, a arguments) (any, error) {
	backend := s.machine.netdevs[a.Name]
	if backend == nil {
		return nil, refusal("DeviceNotFound", "Device '%s' not found", a.Name)
	}
	backend.down = !a.Up
	return nil, nil
}

// Netdevs returns the backends' names, sorted.
func (s *Server) Netdevs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ids(s.machine.netdevs)
}

// AddNIC adds an interface that the machine starts with.
func (s *Server) AddNIC(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.netdevs["host-"+name] = &netdev{device: "net-" + name}
	s.machine.devices["net-"+name] = &device{driver: "virtio-net-pci", pci: true}
}
