package machine

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// builder gathers one machine. Each of its part methods adds the devices of
// one concern and, on a problem, an error; none depends on another's order
// beyond what QEMU itself wants (an object before the device that names it).
type builder struct {
	Machine
	in   Input
	vmi  *v1.VirtualMachineInstance
	spec *v1.DomainSpec
	errs []error

	topology       v1.CPUTopology
	machineOptions []string
	placement      placement
	// threads are the I/O threads of the disks, by index in the spec.
	threads map[int]string
	// hot are the disks that a machine starts without.
	hot map[string]bool
}

func newBuilder(in Input) *builder {
	return &builder{
		in:       in,
		vmi:      in.VMI,
		spec:     &in.VMI.Spec.Domain,
		topology: Topology(&in.VMI.Spec),
		hot:      hotDisks(&in.VMI.Spec),
	}
}

// refuse records a problem with the field at path, below spec.domain.
func (b *builder) refuse(path, format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf("spec.domain.%s: %s", path, fmt.Sprintf(format, args...)))
}

func (b *builder) option(name, value string) {
	b.options = append(b.options, option{name, value})
}

func (b *builder) object(p Properties)   { b.Objects = append(b.Objects, p) }
func (b *builder) blockdev(p Properties) { b.Blockdevs = append(b.Blockdevs, p) }
func (b *builder) netdev(p Properties)   { b.Netdevs = append(b.Netdevs, p) }
func (b *builder) device(p Properties)   { b.Devices = append(b.Devices, p) }

// basics is what every QEMU of Drydock is started with, whatever its guest.
func (b *builder) basics() {
	b.option("name", "guest="+escape(b.vmi.Namespace+"_"+b.vmi.Name)+",debug-threads=on")
	b.option("nodefaults", "")
	b.option("no-user-config", "")
	// QEMU runs in a container without capabilities; this also keeps a guest
	// that broke out of the device model from starting programs.
	b.option("sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	b.option("display", "none")
	b.option("action", "shutdown=poweroff,reboot="+b.rebootAction()+",panic=shutdown"+b.watchdogAction())
	b.debugLogs()
	b.halt()
}

// DebugLogsLabel has virt-launcher's log tell more, if it is "true" at a VMI. (Upstream it asks for libvirt's logs.)
const DebugLogsLabel = "debugLogs"

// debugLogs has QEMU write when its guest begins and ceases to run, and each step of its migrations. A guest has no
// way to make it write much.
func (b *builder) debugLogs() {
	if b.vmi.Labels[DebugLogsLabel] != "true" {
		return
	}
	b.option("msg", "timestamp=on")
	b.option("trace", "vm_state_notify")
	b.option("trace", "migrate_set_state")
}

func (b *builder) rebootAction() string {
	if p := b.spec.RebootPolicy; p != nil && *p == v1.RebootPolicyTerminate {
		return "shutdown"
	}
	return "reset"
}

// socket adds a character device that listens on one of the pod's sockets.
// -chardev is the one option with a nested value that takes no JSON.
func (b *builder) socket(id, name string) {
	b.option("chardev", "socket,id="+id+",path="+layout.Socket(name)+",server=on,wait=off")
}

// named checks a name that becomes part of an id. QEMU would refuse the machine
// in words that mean nothing to the VM's owner.
func (b *builder) named(path, name string) {
	const allowed = "-._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || strings.Trim(name, allowed) != "" {
		b.refuse(path+".name", "%q must be of letters, digits, '-', '.' and '_'", name)
	}
}

// escape makes a string safe as a value in QEMU's key=value options.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Args renders the machine as QEMU's arguments, without the program's name.
func (m *Machine) Args() []string {
	var args []string
	for _, o := range m.options {
		args = append(args, "-"+o.name)
		if o.value != "" {
			args = append(args, o.value)
		}
	}
	for _, section := range []struct {
		name string
		list []Properties
	}{{"object", m.Objects}, {"blockdev", m.Blockdevs}, {"netdev", m.Netdevs}, {"device", m.Devices}} {
		for _, p := range section.list {
			args = append(args, "-"+section.name, p.text())
		}
	}
	return args
}

// text is the JSON of p, its members in alphabetical order.
func (p Properties) text() string {
	text, err := json.Marshal(p)
	if err != nil {
		// Properties hold strings, numbers, booleans and maps of them only.
		panic(fmt.Sprintf("encoding QEMU properties: %v", err))
	}
	return string(text)
}
