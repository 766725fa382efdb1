package qmptest

import (
	"encoding/json"
	"fmt"
	"path"
)

const (
	// sockets is the number of the machine's sockets, of one core and thread each. It starts with one CPU.
	sockets   = 3
	cpuDriver = "qemu64-x86_64-cpu"
	// bootCPU is the path of the CPU that the machine starts with.
	bootCPU = "/machine/unattached/device[0]"
)

func (s *Server) queryCPUs(*monitor, arguments) (any, error) {
	var list []map[string]any
	for socket := sockets - 1; socket >= 0; socket-- {
		entry := map[string]any{
			"type": cpuDriver, "vcpus-count": 1, "props": map[string]any{"socket-id": socket, "core-id": 0, "thread-id": 0},
		}
		if at := s.cpuIn(socket); at != "" {
			entry["qom-path"] = at
		}
		list = append(list, entry)
	}
	return list, nil
}

func (s *Server) cpuIn(socket int) string {
	if socket == 0 {
		return bootCPU
	}
	for id, d := range s.machine.devices {
		if d.driver == cpuDriver && d.socket == socket {
			return peripherals + "/" + id
		}
	}
	return ""
}

func (s *Server) addCPU(a arguments) error {
	var at struct {
		Socket *int `json:"socket-id"`
		Core   int  `json:"core-id"`
		Thread int  `json:"thread-id"`
	}
	if err := json.Unmarshal(a.raw, &at); err != nil {
		return err
	}
	switch {
	case at.Socket == nil:
		return generic("CPU socket-id is not set")
	case *at.Socket < 0 || *at.Socket >= sockets:
		return generic("Invalid CPU socket-id: %d must be in range 0:%d", *at.Socket, sockets-1)
	case s.cpuIn(*at.Socket) != "":
		return generic("CPU[%d] with APIC ID %d exists", *at.Socket, *at.Socket)
	}
	s.machine.devices[a.ID] = &device{driver: cpuDriver, socket: *at.Socket}
	return nil
}

func (s *Server) delCPU(a arguments) error {
	if a.ID == bootCPU {
		return generic("Boot CPU is unpluggable")
	}
	d := s.machine.devices[path.Base(a.ID)]
	if d == nil || path.Dir(a.ID) != peripherals {
		return refusal("DeviceNotFound", "Device '%s' not found", a.ID)
	}
	if !s.machine.systemRuns {
		return generic("acpi: device unplug request for not supported device type: %s", cpuDriver)
	}
	d.leaving = true
	return nil
}

// RunSystem starts a system that can release CPUs, unlike firmware.
func (s *Server) RunSystem() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.systemRuns = true
}

// ReleaseCPUs makes the guest release the requested CPUs.
func (s *Server) ReleaseCPUs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.machine.devices {
		if d.driver == cpuDriver && d.leaving {
			s.deleted(id)
		}
	}
}

// RefuseCPU makes the guest refuse to release the requested CPUs, with a status.
func (s *Server) RefuseCPU(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.machine.devices {
		if d.driver == cpuDriver && d.leaving {
			d.leaving = false
			s.emit("ACPI_DEVICE_OST", map[string]any{"info": map[string]any{
				"slot": fmt.Sprint(d.socket), "slot-type": "CPU", "source": 3, "status": status,
			}})
		}
	}
}
