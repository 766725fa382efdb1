package machine

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// builder builds one machine. Each part adds the devices of one concern, or errors. The parts' order matters only to
// QEMU (an object before the device that names it).
type builder struct {
	Machine
	in   Input
	vmi  *v1.VirtualMachineInstance
	spec *v1.DomainSpec
	errs []error

	topology       v1.CPUTopology
	machineOptions []string
	placement      placement
	// threads are by index in the spec.
	threads map[int]string
	// hot disks are plugged later.
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

// refuse adds an error about the field at path, below spec.domain.
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

func (b *builder) basics() {
	b.option("name", "guest="+escape(b.vmi.Namespace+"_"+b.vmi.Name)+",debug-threads=on")
	b.option("nodefaults", "")
	b.option("no-user-config", "")
	// QEMU runs without capabilities; this also keeps a guest that broke out of the device model from starting
	// programs.
	b.option("sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	b.option("display", "none")
	reboot := "reset"
	if p := b.spec.RebootPolicy; p != nil && *p == v1.RebootPolicyTerminate {
		reboot = "shutdown"
	}
	b.option("action", "shutdown=poweroff,reboot="+reboot+",panic=shutdown"+b.watchdogAction())
	if b.vmi.Labels[DebugLogsLabel] == "true" {
		// A guest can't make QEMU log much by these.
		b.option("msg", "timestamp=on")
		b.option("trace", "vm_state_notify")
		b.option("trace", "migrate_set_state")
	}
	b.halt()
}

// DebugLogsLabel "true" on a VMI makes virt-launcher log more. Upstream it enables libvirt's logs.
const DebugLogsLabel = "debugLogs"

// socket adds a character device that listens on a socket of the pod. -chardev accepts no JSON.
func (b *builder) socket(id, name string, more ...string) {
	b.option("chardev", "socket,id="+id+",path="+layout.Socket(name)+",server=on,wait=off"+strings.Join(more, ""))
}

// QEMU's own error would not help the VM's owner.
func (b *builder) named(path, name string) {
	const allowed = "-._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || strings.Trim(name, allowed) != "" {
		b.refuse(path+".name", "%q must be of letters, digits, '-', '.' and '_'", name)
	}
}

// escape quotes a value in QEMU's key=value options.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Args returns QEMU's arguments, without the program's name.
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

func (p Properties) text() string {
	text, err := json.Marshal(p)
	if err != nil {
		// Properties contain only strings, numbers, booleans and maps of them.
		panic(fmt.Sprintf("encoding QEMU properties: %v", err))
	}
	return string(text)
}
