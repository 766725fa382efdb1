package qmptest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// The machine's parts that tests name.
const (
	// SCSIBus is a bus whose disks a guest need not release.
	SCSIBus = "scsi0.0"
	// Port is a PCI port, whose device the guest has to release.
	Port = "port1"
	// RootDisk is a disk that is there from the start.
	RootDisk = "disk-root"
	// RootNode is its block node.
	RootNode = "n-root"
	// Drive is a drive without a medium.
	Drive = "disk-cd"
	// AgentPort is the guest agent's port.
	AgentPort = "agent0"
	// AgentChardev is the label of what the port is connected to.
	AgentChardev = "char-agent0"

	// Netdev is the backend of an interface.
	Netdev = "host-default"

	// rootSize is RootDisk's, in bytes.
	rootSize = 1 << 20
	// sets is the folder in which QEMU finds the descriptors that it was given.
	sets = "/dev/fdset/"
)

// Arguments are those of a QEMU that has the machine that New has. Its sockets are in dir,
// that of the monitor is named monitor.
func Arguments(accelerator, dir, monitor string) []string {
	return []string{
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator, "-m", fmt.Sprintf("size=32M,maxmem=%dM", 32+memoryRoom>>20), "-smp", fmt.Sprintf("cpus=1,maxcpus=%d,sockets=%[1]d", sockets), "-display", "none", "-S",
		"-device", "virtio-scsi-pci,id=scsi0", "-device", "pcie-root-port,id=" + Port + ",chassis=1",
		"-device", "ide-cd,id=" + Drive + ",bus=ide.0",
		"-blockdev", fmt.Sprintf("driver=null-co,node-name=%s,size=%d", RootNode, rootSize),
		"-device", "virtio-blk-pci,id=" + RootDisk + ",drive=" + RootNode,
		"-device", "virtio-serial-pci,id=channels0",
		"-chardev", "socket,id=" + AgentChardev + ",path=" + dir + "/agent.sock,server=on,wait=off",
		"-device", "virtserialport,id=" + AgentPort + ",bus=channels0.0,nr=1,chardev=" + AgentChardev + ",name=org.qemu.guest_agent.0",
		"-object", fmt.Sprintf("memory-backend-ram,id=%s,size=%d,reserve=off", memoryBackend, memoryRoom),
		"-device", fmt.Sprintf("virtio-mem-pci,id=%s,memdev=%s,block-size=%d", MemoryDevice, memoryBackend, memoryBlock),
		"-netdev", "hubport,id=" + Netdev + ",hubid=0",
		"-qmp", "unix:" + dir + "/" + monitor + ",server=on,wait=off",
	}
}

// machine is the model.
type machine struct {
	// runState is QEMU's.
	runState string
	objects  map[string]string
	devices  map[string]*device
	nodes    map[string]*node
	sets     []*fdset
	nextSet  int64
	nextNode int
	// agentOpen means that the guest has opened AgentPort.
	agentOpen bool
	// systemRuns means that the guest's system has taken its CPUs over from the firmware.
	systemRuns bool
	// host are the devices of the node that can be passed through, by PCI address.
	host map[string]bool
	// netdevs are the backends of interfaces, by id.
	netdevs   map[string]*netdev
	memory    memory
	migration migration
	exports   exports
	jobs      []*job
	// mirrorsHeld has jobs wait, and is closed when they may go on.
	mirrorsHeld chan struct{}
}

// device is one with an id.
type device struct {
	driver string
	// node is the block node of a disk, or the medium in a drive.
	node string
	// drive means that the medium can be exchanged.
	drive, trayOpen, locked bool
	// pci means that the guest has to release the device; leaving that it was asked to.
	pci, leaving bool
	ioStatus     string
	bootIndex    int
	// socket is where a CPU is.
	socket int
}

// node is a block node.
type node struct {
	driver, file string
	size         int64
	order        int
	// content is how often the node was written to.
	content int64
	// nbd is the connection to another QEMU, whose export the node is.
	nbd net.Conn
}

// fdset is a set of one descriptor.
type fdset struct {
	id      int64
	opaque  string
	file    *os.File
	removed bool
}

func newMachine() *machine {
	m := &machine{
		runState: "prelaunch", objects: map[string]string{"pc.ram": "memory-backend-ram", memoryBackend: "memory-backend-ram"},
		nodes:     map[string]*node{RootNode: {driver: "null-co", size: rootSize}},
		netdevs:   map[string]*netdev{Netdev: {}},
		migration: newMigration(),
	}
	m.devices = map[string]*device{
		"scsi0": {driver: "virtio-scsi-pci", pci: true}, "channels0": {driver: "virtio-serial-pci", pci: true},
		Port: {driver: "pcie-root-port", pci: true}, AgentPort: {driver: "virtserialport"},
		Drive:        {driver: "ide-cd", drive: true, ioStatus: "ok"},
		MemoryDevice: {driver: "virtio-mem-pci", pci: true},
		RootDisk:     {driver: "virtio-blk-pci", node: RootNode, pci: true, ioStatus: "ok"},
	}
	return m
}

func (m *machine) close() {
	for _, s := range m.sets {
		_ = s.file.Close()
	}
}

func (m *machine) running() bool { return m.runState == "running" }

// isBlock reports whether QEMU lists a device among its block devices.
func (d *device) isBlock() bool { return d.drive || d.node != "" }

// qdev is the name of a device in the lists of block devices: its id, but for virtio, whose
// disk is a part of it.
func (d *device) qdev(id string) string {
	if strings.HasPrefix(d.driver, "virtio-blk") {
		return "/machine/peripheral/" + id + "/virtio-backend"
	}
	return id
}

// deviceUses and nodeUses report whether a node is a disk's, or another node's.
func (m *machine) deviceUses(name string) bool {
	for _, d := range m.devices {
		if d.node == name {
			return true
		}
	}
	return false
}

func (m *machine) nodeUses(name string) bool {
	for _, n := range m.nodes {
		if n.file == name {
			return true
		}
	}
	return false
}

// fileSize is how large the file of a node is; ok is false when there is none.
func (m *machine) fileSize(path string) (size int64, ok bool) {
	number, ok := strings.CutPrefix(path, sets)
	if !ok {
		info, err := os.Stat(path)
		if err != nil {
			return 0, false
		}
		return info.Size(), true
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, false
	}
	for _, s := range m.sets {
		if s.id != id || s.removed {
			continue
		}
		info, err := s.file.Stat()
		return info.Size(), err == nil
	}
	return 0, false
}

// sweep closes the descriptors that were removed. QEMU 7.2 keeps them while its guest does
// not run.
func (m *machine) sweep() {
	if !m.running() {
		return
	}
	kept := m.sets[:0]
	for _, s := range m.sets {
		if s.removed {
			_ = s.file.Close()
			continue
		}
		kept = append(kept, s)
	}
	m.sets = kept
}
