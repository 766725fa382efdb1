package qmptest

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"drydock.dev/drydock/internal/qemu/qmp"
)

type arguments struct {
	ID       string          `json:"id"`
	QOMType  string          `json:"qom-type"`
	Path     string          `json:"path"`
	Property string          `json:"property"`
	Value    json.RawMessage `json:"value"`
	Opaque   string          `json:"opaque"`
	FDSet    int64           `json:"fdset-id"`
	Driver   string          `json:"driver"`
	Node     string          `json:"node-name"`
	File     string          `json:"file"`
	Filename string          `json:"filename"`
	Size     int64           `json:"size"`
	Drive    string          `json:"drive"`
	Force    bool            `json:"force"`
	URI      string          `json:"uri"`
	State    string          `json:"state"`
	Export   string          `json:"export"`
	Name     string          `json:"name"`
	Up       bool            `json:"up"`
	JobID    string          `json:"job-id"`
	Device   string          `json:"device"`
	Target   string          `json:"target"`
	Resume   bool            `json:"resume"`

	CommandLine string `json:"command-line"`

	Netdev string `json:"netdev"`
	Host   string `json:"host"`
	Cache  struct {
		Direct bool `json:"direct"`
	} `json:"cache"`

	Capabilities []struct {
		Capability string `json:"capability"`
		State      bool   `json:"state"`
	} `json:"capabilities"`
	raw json.RawMessage
}

// They are called with s.mu held.
var commands = map[string]func(s *Server, m *monitor, a arguments) (any, error){
	"query-status": (*Server).queryStatus, "query-kvm": (*Server).queryKVM, "cont": (*Server).cont, "stop": (*Server).stop,
	"system_reset": (*Server).reset, "system_wakeup": (*Server).wakeUp, "system_powerdown": (*Server).powerDown,
	"send-key": accept, "announce-self": accept, "set-action": accept, "quit": (*Server).quit,
	"object-add": (*Server).objectAdd, "object-del": (*Server).objectDel,
	"qom-list": (*Server).qomList, "qom-get": (*Server).qomGet, "qom-set": (*Server).qomSet,
	"add-fd": (*Server).addFD, "remove-fd": (*Server).removeFD, "query-fdsets": (*Server).queryFDSets,
	"blockdev-add": (*Server).blockdevAdd, "blockdev-del": (*Server).blockdevDel,
	"query-named-block-nodes": (*Server).queryNodes, "block_resize": (*Server).blockResize,
	"device_add": (*Server).deviceAdd, "device_del": (*Server).deviceDel,
	"query-block": (*Server).queryBlock, "query-blockstats": (*Server).queryBlockStats,
	"blockdev-open-tray": (*Server).openTray, "blockdev-close-tray": (*Server).closeTray,
	"blockdev-insert-medium": (*Server).insertMedium, "blockdev-remove-medium": (*Server).removeMedium,
	"query-chardev": (*Server).queryChardev, "set_link": (*Server).setLink, "query-hotpluggable-cpus": (*Server).queryCPUs,
	"query-memory-devices": (*Server).queryMemory,
	"netdev_add":           (*Server).netdevAdd, "netdev_del": (*Server).netdevDel,
	"migrate-set-capabilities": (*Server).setCapabilities, "migrate-set-parameters": (*Server).setParameters,
	"migrate-incoming": (*Server).migrateIncoming, "migrate": (*Server).migrate, "query-migrate": (*Server).queryMigrate,
	"nbd-server-start": (*Server).nbdStart, "nbd-server-stop": (*Server).nbdStop,
	"block-export-add": (*Server).exportAdd, "query-block-exports": (*Server).queryExports,
	"blockdev-mirror": (*Server).mirror, "block-job-cancel": (*Server).cancelJob, "job-dismiss": (*Server).dismissJob, "query-jobs": (*Server).queryJobs,
	"migrate-start-postcopy": (*Server).startPostCopy, "migrate-recover": (*Server).migrateRecover,
	"query-migrate-capabilities": (*Server).queryCapabilities, "query-migrate-parameters": (*Server).queryParameters,
	"human-monitor-command": (*Server).humanMonitor,
	"migrate-continue":      (*Server).migrateContinue, "migrate_cancel": (*Server).migrateCancel,
}

func (s *Server) answer(m *monitor, command string, raw json.RawMessage) (any, error) {
	if command == "qmp_capabilities" {
		s.negotiate(m, raw)
		return nil, nil
	}
	do, known := commands[command]
	if !known || !m.negotiated {
		return nil, refusal("CommandNotFound", "The command %s has not been found", command)
	}
	var a arguments
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
	}
	a.raw = raw
	return do(s, m, a)
}

func refusal(class, format string, values ...any) error {
	return &qmp.Error{Class: class, Desc: fmt.Sprintf(format, values...)}
}

func generic(format string, values ...any) error { return refusal("GenericError", format, values...) }

func accept(*Server, *monitor, arguments) (any, error) { return nil, nil }

func (s *Server) queryStatus(*monitor, arguments) (any, error) {
	return map[string]any{"status": s.machine.runState, "singlestep": false, "running": s.machine.running()}, nil
}

func (s *Server) queryKVM(*monitor, arguments) (any, error) {
	return map[string]any{"present": true, "enabled": false}, nil
}

func (s *Server) cont(*monitor, arguments) (any, error) {
	switch s.machine.runState {
	case "running", "suspended", "inmigrate": // a suspended guest must be woken up, and an incoming one starts by itself
		return nil, nil
	case "internal-error", "shutdown":
		return nil, generic("Resetting the Virtual Machine is required")
	case "finish-migrate":
		return nil, generic("Migration is not finalized yet")
	}
	for _, d := range s.machine.devices {
		if d.ioStatus != "" {
			d.ioStatus = "ok"
		}
	}
	s.machine.runState = "running"
	s.emit("RESUME", nil)
	return nil, nil
}

func (s *Server) stop(*monitor, arguments) (any, error) {
	if s.machine.running() {
		s.machine.runState = "paused"
		s.emit("STOP", nil)
	}
	return nil, nil
}

// reset answers before it resets.
func (s *Server) reset(*monitor, arguments) (any, error) {
	s.afterwards = append(s.afterwards, func() {
		if !s.machine.running() && s.machine.runState != "inmigrate" {
			s.machine.runState = "prelaunch"
		}
		for id, d := range s.machine.devices {
			if d.leaving {
				s.deleted(id)
			}
		}
		s.emit("RESET", map[string]any{"guest": false, "reason": "host-qmp-system-reset"})
	})
	return nil, nil
}

func (s *Server) wakeUp(*monitor, arguments) (any, error) {
	if s.machine.runState != "suspended" {
		return nil, generic("Unable to wake up: guest is not in suspended state")
	}
	s.machine.runState = "running"
	s.emit("WAKEUP", nil)
	return nil, nil
}

func (s *Server) powerDown(*monitor, arguments) (any, error) {
	s.emit("POWERDOWN", nil)
	return nil, nil
}

func (s *Server) quit(*monitor, arguments) (any, error) {
	s.afterwards = append(s.afterwards, func() {
		s.emit("SHUTDOWN", map[string]any{"guest": false, "reason": "host-qmp-quit"})
		s.exit()
	})
	return nil, nil
}

func (s *Server) objectAdd(_ *monitor, a arguments) (any, error) {
	if _, has := s.machine.objects[a.ID]; has {
		return nil, generic("attempt to add duplicate property '%s' to object (type 'container')", a.ID)
	}
	s.machine.objects[a.ID] = a.QOMType
	return nil, nil
}

func (s *Server) objectDel(_ *monitor, a arguments) (any, error) {
	if _, has := s.machine.objects[a.ID]; !has {
		return nil, generic("object '%s' not found", a.ID)
	}
	delete(s.machine.objects, a.ID)
	return nil, nil
}

const peripherals = "/machine/peripheral"

func (s *Server) qomList(_ *monitor, a arguments) (any, error) {
	type property struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	list := []property{{"type", "string"}}
	switch a.Path {
	case "/objects":
		for _, id := range ids(s.machine.objects) {
			list = append(list, property{id, "child<" + s.machine.objects[id] + ">"})
		}
	case peripherals:
		for _, id := range ids(s.machine.devices) {
			list = append(list, property{id, "child<" + s.machine.devices[id].driver + ">"})
		}
	default:
		return nil, refusal("DeviceNotFound", "Device '%s' not found", a.Path)
	}
	return list, nil
}

func (s *Server) peripheral(at string) (*device, error) {
	if d := s.machine.devices[path.Base(at)]; d != nil && path.Dir(at) == peripherals {
		return d, nil
	}
	return nil, refusal("DeviceNotFound", "Device '%s' not found", at)
}

func (s *Server) qomGet(_ *monitor, a arguments) (any, error) {
	if a.Path == "/machine" && a.Property == "type" {
		return "pc-q35-7.2-machine", nil
	}
	d, err := s.peripheral(a.Path)
	switch {
	case err != nil:
		return nil, err
	case a.Property == "drive":
		return d.node, nil
	case a.Property == "bootindex":
		return d.bootIndex, nil
	}
	return nil, generic("Property '%s.%s' not found", d.driver, a.Property)
}

func (s *Server) qomSet(_ *monitor, a arguments) (any, error) {
	d, err := s.peripheral(a.Path)
	switch {
	case err != nil:
		return nil, err
	case a.Property == "drive":
		var name string
		if err := json.Unmarshal(a.Value, &name); err != nil {
			return nil, err
		}
		if s.machine.nodes[name] == nil {
			return nil, generic("Property '%s.drive' can't find value '%s'", d.driver, name)
		}
		d.node = name
		return nil, nil
	case a.Property == "bootindex":
		return nil, s.setBootIndex(d, a.Value)
	case a.Property == "requested-size" && path.Base(a.Path) == MemoryDevice:
		return nil, s.giveMemory(a.Value)
	}
	return nil, generic("Property '%s.%s' not found", d.driver, a.Property)
}

// No device may have the index already, not even this one.
func (s *Server) setBootIndex(d *device, value json.RawMessage) error {
	var index int
	if err := json.Unmarshal(value, &index); err != nil {
		return err
	}
	for _, other := range s.machine.devices {
		if index > 0 && other.bootIndex == index {
			return generic("The bootindex %d has already been used", index)
		}
	}
	d.bootIndex = index
	return nil
}

func (s *Server) queryChardev(*monitor, arguments) (any, error) {
	return []map[string]any{
		{"label": AgentChardev, "frontend-open": s.machine.agentOpen, "filename": "unix:agent.sock,server=on"},
		{"label": "compat_monitor0", "frontend-open": true, "filename": "unix:monitor.sock,server=on"},
	}, nil
}

func isVirtio(driver string) bool { return strings.HasSuffix(driver, "-pci") }
