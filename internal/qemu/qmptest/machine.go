package qmptest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The parts of the machine that tests refer to.
const (
	// SCSIBus has disks that a guest need not release.
	SCSIBus = "scsi0.0"
	// Port has a device that the guest must release.
	Port = "port1"
	// RootDisk is a disk that the machine starts with.
	RootDisk = "disk-root"
	// RootNode is its block node.
	RootNode = "n-root"
	// Drive is a drive without a medium.
	Drive = "disk-cd"
	// AgentPort is the guest agent's port.
	AgentPort = "agent0"
	// AgentChardev is the label of that port's chardev.
	AgentChardev = "char-agent0"

	// Netdev is the backend of an interface.
	Netdev = "host-default"

	// rootSize is RootDisk's, in bytes.
	rootSize = 1 << 20
	// sets is the folder of QEMU's descriptor sets.
	sets = "/dev/fdset/"
)

// Arguments returns the arguments of a QEMU with New's machine. Its sockets are in dir; the monitor's is named monitor.
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

type machine struct {
	runState  string
	objects   map[string]string
	devices   map[string]*device
	nodes     map[string]*node
	sets      []*fdset
	nextSet   int64
	nextNode  int
	agentOpen bool
	// systemRuns means that a system has taken the CPUs over from the firmware.
	systemRuns bool
	// host are the node's devices that can be passed through, by PCI address.
	host      map[string]bool
	netdevs   map[string]*netdev
	memory    memory
	migration migration
	exports   exports
	jobs      []*job
	// stuck is closed when the memory arrives for which the main loop waits; nil if it waits for none.
	stuck chan struct{}
	// needsMemory means that it waits whenever memory can't come.
	needsMemory bool
	// mirrorsHeld blocks jobs until it is closed.
	mirrorsHeld chan struct{}
}

type device struct {
	driver string
	// node is the block node of a disk, or the medium in a drive.
	node string
	// drive means that the medium is removable.
	drive, trayOpen, locked bool
	// pci means that the guest must release the device, leaving that it was asked to.
	pci, leaving bool
	ioStatus     string
	bootIndex    int
	socket       int
}

type node struct {
	driver, file string
	size         int64
	order        int
	// content is the number of writes.
	content int64
	// nbd is the connection to another QEMU's export.
	nbd net.Conn
}

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

func (d *device) isBlock() bool { return d.drive || d.node != "" }

// qdev returns a device's name in the lists of block devices: its ID, or for virtio the path of the disk below it.
func (d *device) qdev(id string) string {
	if strings.HasPrefix(d.driver, "virtio-blk") {
		return "/machine/peripheral/" + id + "/virtio-backend"
	}
	return id
}

// deviceUses and nodeUses report whether a device, or another node, uses a node.
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

// fileSize returns the size of a node's file; ok is false without one.
func (m *machine) fileSize(path string) (size int64, ok bool) {
	if !strings.HasPrefix(path, sets) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, false
		}
		return info.Size(), true
	}
	set := m.setOf(path)
	if set == nil {
		return 0, false
	}
	info, err := set.file.Stat()
	if err != nil {
		return 0, false
	}
	return info.Size(), true
}

// setOf returns the descriptor set of a path, nil if it has none.
func (m *machine) setOf(path string) *fdset {
	number, ok := strings.CutPrefix(path, sets)
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return nil
	}
	for _, s := range m.sets {
		if s.id == id && !s.removed {
			return s
		}
	}
	return nil
}

// direct reports whether the descriptor bypasses the page cache.
func (s *fdset) direct() bool {
	flags, err := unix.FcntlInt(s.file.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_DIRECT != 0
}

// QEMU 7.2 keeps removed descriptors while its guest does not run.
func (m *machine) closeRemovedFDs() {
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
