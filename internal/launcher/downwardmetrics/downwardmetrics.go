// Package downwardmetrics is what a guest is told of its host and of itself, in the format of vhostmd: the document,
// the disk that holds it, the requests for it on a virtio-serial port, and what of the kernel's text the figures are.
//
// It is pure: it opens nothing and asks no clock. It decides what of a node gets to a guest: a figure that is not in
// Figures does not (decision 603). A guest writes the requests, so what is kept of them is bounded. It must not
// import more than the standard library, and of that little: every VM pays for what virt-launcher links.
package downwardmetrics

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Vendor is what guests' software knows the platform by.
const Vendor = "kubevirt.io"

// systemInfo is the host's operating system.
const systemInfo = "linux"

// Figures are all that a guest is told. A part that is nil, and processors and a time that are zero, are not known,
// and are left out.
type Figures struct {
	// HostName is the name of the node.
	HostName string
	// QEMU is its version.
	QEMU Version
	VM   *VM
	// Processors is how many physical processors the host has, not their cores.
	Processors int
	// CPUTime is what the host's CPUs have worked.
	CPUTime CPUTime
	Memory  *Memory
	Paging  *Paging
	// Time is the host's.
	Time time.Time
}

// CPUTime counts hundredths of a second, in which the kernel shows what CPUs have worked on every machine.
type CPUTime uint64

func (t CPUTime) String() string { return fmt.Sprintf("%d.%02d", t/100, t%100) }

// Version is a version of QEMU.
type Version struct{ Major, Minor, Micro int }

// VM is of the guest itself.
type VM struct {
	CPUTime CPUTime
	VCPUs   int
	// Memory is what the guest has, in KiB.
	Memory uint64
}

// Memory is the host's, in KiB.
type Memory struct {
	// Free is memory that nobody uses, FreeVirtual also the swap space that nobody uses. Used is memory that is
	// neither free nor a cache, UsedVirtual also the swap space.
	Free, FreeVirtual, Used, UsedVirtual uint64
}

// Paging is how much the host has read from its swap space and written to it, in KiB.
type Paging struct{ In, Out uint64 }

const (
	host = "host"
	vm   = "vm"

	text     = "string"
	unsigned = "uint64"
	signed   = "int64"
	real     = "real64"

	seconds = "s"
	kibi    = "KiB"
)

// metric is one figure as the document has it.
type metric struct {
	name, kind, context, unit, value string
}

// Document returns the figures as vhostmd's XML. It has no empty line in it, and ends with a line's end.
func (f *Figures) Document() []byte {
	var b strings.Builder
	b.WriteString("<metrics>\n")
	for _, m := range f.metrics() {
		unit := ""
		if m.unit != "" {
			unit = fmt.Sprintf(" unit=%q", m.unit)
		}
		fmt.Fprintf(&b, "  <metric type=%q context=%q%s>\n    <name>%s</name>\n    <value>%s</value>\n  </metric>\n",
			m.kind, m.context, unit, m.name, escape(m.value))
	}
	b.WriteString("</metrics>\n")
	return []byte(b.String())
}

// metrics are the figures in the order in which upstream gives them.
func (f *Figures) metrics() []metric {
	list := []metric{
		{"HostName", text, host, "", f.HostName},
		{"HostSystemInfo", text, host, "", systemInfo},
		{"VirtualizationVendor", text, host, "", Vendor},
		{"VirtProductInfo", text, host, "", fmt.Sprintf("qemu-%d.%d.%d", f.QEMU.Major, f.QEMU.Minor, f.QEMU.Micro)},
	}
	if v := f.VM; v != nil {
		list = append(list,
			metric{"TotalCPUTime", real, vm, seconds, v.CPUTime.String()},
			metric{"ResourceProcessorLimit", unsigned, vm, "", strconv.Itoa(v.VCPUs)},
			metric{"PhysicalMemoryAllocatedToVirtualSystem", unsigned, vm, kibi, count(v.Memory)},
			metric{"ResourceMemoryLimit", unsigned, vm, kibi, count(v.Memory)})
	}
	if f.Processors > 0 {
		list = append(list, metric{"NumberOfPhysicalCPUs", signed, host, "", strconv.Itoa(f.Processors)})
	}
	if f.CPUTime > 0 {
		list = append(list, metric{"TotalCPUTime", real, host, seconds, f.CPUTime.String()})
	}
	if m := f.Memory; m != nil {
		list = append(list,
			metric{"FreePhysicalMemory", unsigned, host, kibi, count(m.Free)},
			metric{"FreeVirtualMemory", unsigned, host, kibi, count(m.FreeVirtual)},
			metric{"MemoryAllocatedToVirtualServers", unsigned, host, kibi, count(m.Used)},
			metric{"UsedVirtualMemory", unsigned, host, kibi, count(m.UsedVirtual)})
	}
	if p := f.Paging; p != nil {
		list = append(list,
			metric{"PagedInMemory", unsigned, host, kibi, count(p.In)},
			metric{"PagedOutMemory", unsigned, host, kibi, count(p.Out)})
	}
	return append(list, metric{"Time", signed, host, seconds, strconv.FormatInt(f.Time.Unix(), 10)})
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// escape makes a text the content of an element, on one line.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\n", " ").Replace(s)
}
