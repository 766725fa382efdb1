// Package downwardmetrics encodes metrics of the host and the guest for the guest, in vhostmd's format.
//
// It is pure: it opens nothing and reads no clock. A guest gets only Figures of its node's data (decision 603). The
// memory for its requests is bounded. The package must import only the standard library, and little of that: every VM
// pays for the code that virt-launcher links.
package downwardmetrics

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Vendor is the platform's name for guests.
const Vendor = "kubevirt.io"

const systemInfo = "linux"

// Figures are all metrics of the document. Unknown ones (nil or zero) are left out.
type Figures struct {
	HostName   string
	QEMU       Version
	VM         *VM
	Processors int // physical, not cores
	CPUTime    CPUTime
	Memory     *Memory
	Paging     *Paging
	Time       time.Time
}

// CPUTime is in hundredths of a second, as in /proc on every machine.
type CPUTime uint64

func (t CPUTime) String() string { return fmt.Sprintf("%d.%02d", t/100, t%100) }

// Version is a version of QEMU.
type Version struct{ Major, Minor, Micro int }

// VM has the guest's metrics.
type VM struct {
	CPUTime CPUTime
	VCPUs   int
	// Memory is the guest's, in KiB.
	Memory uint64
}

// Memory is the host's, in KiB.
type Memory struct {
	// Used is neither free nor a cache. The virtual figures add swap space.
	Free, FreeVirtual, Used, UsedVirtual uint64
}

// Paging is the traffic of the host's swap space, in KiB.
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

type metric struct {
	name, kind, context, unit, value string
}

// Document returns the figures as vhostmd's XML, with a final newline.
func (f *Figures) Document() []byte {
	var b strings.Builder
	b.WriteString("<metrics>\n")
	plain := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\n", " ")
	for _, m := range f.metrics() {
		unit := ""
		if m.unit != "" {
			unit = fmt.Sprintf(" unit=%q", m.unit)
		}
		fmt.Fprintf(&b, "  <metric type=%q context=%q%s>\n    <name>%s</name>\n    <value>%s</value>\n  </metric>\n",
			m.kind, m.context, unit, m.name, plain.Replace(m.value))
	}
	b.WriteString("</metrics>\n")
	return []byte(b.String())
}

// The order is upstream's.
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
