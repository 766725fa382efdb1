package qmptest

import (
	"path"
	"slices"
)

func (s *Server) addFD(m *monitor, a arguments) (any, error) {
	if len(m.files) == 0 {
		return nil, generic("No file descriptor supplied via SCM_RIGHTS")
	}
	set := &fdset{id: s.machine.nextSet, opaque: a.Opaque, file: m.files[0]}
	m.files = m.files[1:]
	s.machine.nextSet++
	s.machine.sets = append(s.machine.sets, set)
	return map[string]int64{"fdset-id": set.id, "fd": int64(set.file.Fd())}, nil
}

func (s *Server) removeFD(_ *monitor, a arguments) (any, error) {
	for _, set := range s.machine.sets {
		if set.id == a.FDSet {
			set.removed = true
			s.machine.closeRemovedFDs()
			return nil, nil
		}
	}
	return nil, generic("File descriptor named 'fdset-id:%d' not found", a.FDSet)
}

func (s *Server) queryFDSets(*monitor, arguments) (any, error) {
	list := []map[string]any{}
	for _, set := range s.machine.sets {
		list = append(list, map[string]any{"fdset-id": set.id, "fds": []map[string]any{{"fd": set.file.Fd(), "opaque": set.opaque}}})
	}
	return list, nil
}

func (m *machine) addNode(name string, n *node) {
	m.nextNode++
	n.order = m.nextNode
	m.nodes[name] = n
}

func (s *Server) blockdevAdd(_ *monitor, a arguments) (any, error) {
	if s.machine.nodes[a.Node] != nil {
		return nil, generic("Duplicate nodes with node-name='%s'", a.Node)
	}
	if a.Driver == "nbd" {
		n, err := s.dialExport(a)
		if err == nil {
			s.machine.addNode(a.Node, n)
		}
		return nil, err
	}
	n := &node{driver: a.Driver, file: a.File, size: a.Size}
	if a.File != "" {
		below := s.machine.nodes[a.File]
		if below == nil {
			return nil, generic("Cannot find device='%s' nor node-name='%s'", a.File, a.File)
		}
		if n.size = below.size; a.Size > 0 {
			n.size = a.Size
		}
	}
	if a.Filename != "" {
		size, ok := s.machine.fileSize(a.Filename)
		if !ok {
			return nil, generic("Could not open '%s': No such file or directory", a.Filename)
		}
		if set := s.machine.setOf(a.Filename); set != nil && set.direct() != a.Cache.Direct {
			return nil, generic("Failed to find file descriptor with matching flags")
		}
		n.size = size
	}
	s.machine.addNode(a.Node, n)
	return nil, nil
}

func (s *Server) blockdevDel(_ *monitor, a arguments) (any, error) {
	switch {
	case s.machine.nodes[a.Node] == nil:
		return nil, generic("Failed to find node with node-name='%s'", a.Node)
	case s.machine.deviceUses(a.Node):
		return nil, generic("Node %s is in use", a.Node)
	case s.machine.nodeUses(a.Node):
		return nil, generic("Block device %s is in use", a.Node)
	case s.machine.jobUses(a.Node):
		return nil, generic("Node %s is in use", a.Node)
	}
	if n := s.machine.nodes[a.Node]; n.nbd != nil {
		_ = n.nbd.Close()
	}
	delete(s.machine.nodes, a.Node)
	return nil, nil
}

func (s *Server) blockResize(_ *monitor, a arguments) (any, error) {
	n := s.machine.nodes[a.Node]
	if n == nil {
		return nil, generic("Cannot find device='' nor node-name='%s'", a.Node)
	}
	for ; n != nil; n = s.machine.nodes[n.file] {
		n.size = a.Size
	}
	return nil, nil
}

func (n *node) image() map[string]any {
	return map[string]any{"virtual-size": n.size, "format": n.driver}
}

func (s *Server) queryNodes(*monitor, arguments) (any, error) {
	names := ids(s.machine.nodes)
	slices.SortFunc(names, func(a, b string) int { return s.machine.nodes[b].order - s.machine.nodes[a].order })
	list := []map[string]any{}
	for _, name := range names {
		n := s.machine.nodes[name]
		list = append(list, map[string]any{"node-name": name, "drv": n.driver, "image": n.image()})
	}
	return list, nil
}

func (s *Server) deviceAdd(_ *monitor, a arguments) (any, error) {
	switch {
	case a.Netdev != "":
		return s.plugNIC(a)
	case a.Driver == passThroughDriver:
		return nil, s.passThrough(a)
	}
	switch {
	case s.machine.devices[a.ID] != nil:
		return nil, generic("Duplicate device ID '%s'", a.ID)
	case a.Driver == cpuDriver:
		return nil, s.addCPU(a)
	case s.machine.nodes[a.Drive] == nil:
		return nil, generic("Property '%s.drive' can't find value '%s'", a.Driver, a.Drive)
	case s.machine.deviceUses(a.Drive):
		return nil, generic("Permission conflict on node '%s'", a.Drive)
	}
	s.machine.devices[a.ID] = &device{driver: a.Driver, node: a.Drive, pci: isVirtio(a.Driver), ioStatus: "ok"}
	return nil, nil
}

func (s *Server) deviceDel(_ *monitor, a arguments) (any, error) {
	d := s.machine.devices[a.ID]
	switch {
	case path.IsAbs(a.ID):
		return nil, s.delCPU(a)
	case d == nil:
		return nil, refusal("DeviceNotFound", "Device '%s' not found", a.ID)
	case d.pci:
		d.leaving = true
		return nil, nil
	}
	s.deleted(a.ID)
	return nil, nil
}

func (s *Server) deleted(id string) {
	delete(s.machine.devices, id)
	s.emit("DEVICE_DELETED", map[string]any{"device": id, "path": peripherals + "/" + id})
}

func (s *Server) queryBlock(*monitor, arguments) (any, error) {
	list := []map[string]any{}
	for _, id := range ids(s.machine.devices) {
		d := s.machine.devices[id]
		if !d.isBlock() {
			continue
		}
		entry := map[string]any{"qdev": d.qdev(id), "device": "", "locked": d.locked, "removable": d.drive, "io-status": d.ioStatus, "type": "unknown"}
		if d.drive {
			entry["tray_open"] = d.trayOpen
		}
		if n := s.machine.nodes[d.node]; n != nil {
			entry["inserted"] = map[string]any{"node-name": d.node, "drv": n.driver, "image": n.image()}
		}
		list = append(list, entry)
	}
	return list, nil
}

func (s *Server) queryBlockStats(*monitor, arguments) (any, error) {
	list := []map[string]any{}
	for _, id := range ids(s.machine.devices) {
		d := s.machine.devices[id]
		if d.isBlock() {
			list = append(list, map[string]any{"qdev": d.qdev(id), "device": "", "stats": map[string]int64{
				"rd_operations": 0, "wr_operations": 0, "flush_operations": 0, "rd_bytes": 0, "wr_bytes": 0,
				"rd_total_time_ns": 0, "wr_total_time_ns": 0, "flush_total_time_ns": 0,
			}})
		}
	}
	return list, nil
}

func (s *Server) drive(id string) (*device, error) {
	if d := s.machine.devices[id]; d != nil && d.drive {
		return d, nil
	}
	return nil, refusal("DeviceNotFound", "Device '%s' not found", id)
}

func (s *Server) openTray(_ *monitor, a arguments) (any, error) {
	d, err := s.drive(a.ID)
	if err != nil {
		return nil, err
	}
	if !d.trayOpen && (!d.locked || a.Force) {
		s.moveTray(a.ID, d, true)
	}
	return nil, nil
}

func (s *Server) closeTray(_ *monitor, a arguments) (any, error) {
	d, err := s.drive(a.ID)
	if err == nil && d.trayOpen {
		s.moveTray(a.ID, d, false)
	}
	return nil, err
}

func (s *Server) moveTray(id string, d *device, open bool) {
	d.trayOpen = open
	s.emit("DEVICE_TRAY_MOVED", map[string]any{"device": "", "id": id, "tray-open": open})
}

func (s *Server) insertMedium(_ *monitor, a arguments) (any, error) {
	d, err := s.drive(a.ID)
	switch {
	case err != nil:
		return nil, err
	case !d.trayOpen:
		return nil, generic("Tray of the device is not open")
	case s.machine.nodes[a.Node] == nil:
		return nil, generic("Node '%s' not found", a.Node)
	case s.machine.deviceUses(a.Node):
		return nil, generic("Node '%s' is already in use", a.Node)
	case d.node != "":
		return nil, generic("There already is a medium in the device")
	}
	d.node = a.Node
	return nil, nil
}

func (s *Server) removeMedium(_ *monitor, a arguments) (any, error) {
	d, err := s.drive(a.ID)
	switch {
	case err != nil:
		return nil, err
	case !d.trayOpen:
		return nil, generic("Tray of device '%s' is not open", a.ID)
	}
	d.node = ""
	return nil, nil
}
