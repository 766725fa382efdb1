// Package commontypes has the instance types and preferences that come with Drydock, under the names that KubeVirt's
// users know: it builds the objects from two tables, and plans the changes of those in a cluster.
//
// It must not access a cluster, or interpret a type or preference for a machine.
package commontypes

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

// series is a family of instance types.
type series struct {
	name, version  string
	class, display string
	attributes     func(*instancetypev1.VirtualMachineInstancetypeSpec)
	sizes          []size
	// pages are the sizes of huge pages; without any, the guest has ordinary pages. The first size gets the plain name, the
	// others are appended to it in lower case.
	pages []string
}

type size struct {
	name   string
	cpus   uint32
	memory string
}

// general are the sizes with 4 GiB per CPU, from medium on.
var general = []size{
	{"nano", 1, "512Mi"}, {"micro", 1, "1Gi"}, {"small", 1, "2Gi"}, {"medium", 1, "4Gi"}, {"large", 2, "8Gi"},
	{"xlarge", 4, "16Gi"}, {"2xlarge", 8, "32Gi"}, {"4xlarge", 16, "64Gi"}, {"8xlarge", 32, "128Gi"},
}

// twoMediums has two CPUs and half the memory of large. Only some series have it.
var twoMediums = size{"2xmedium", 2, "4Gi"}

var allSeries = []series{
	{
		name: "cx", version: "1", class: "compute.exclusive", display: "Compute Exclusive", attributes: exclusive,
		sizes: []size{
			{"medium", 1, "2Gi"}, {"large", 2, "4Gi"}, {"xlarge", 4, "8Gi"},
			{"2xlarge", 8, "16Gi"}, {"4xlarge", 16, "32Gi"}, {"8xlarge", 32, "64Gi"},
		},
		pages: []string{"2Mi", "1Gi"},
	},
	{
		name: "d", version: "1", class: "dedicated.vcpu", display: "Dedicated vCPU", attributes: dedicatedWithIOThreads,
		sizes: append([]size{twoMediums}, general...),
	},
	{
		name: "m", version: "1", class: "memory.intensive", display: "Memory Intensive", attributes: plain,
		sizes: []size{
			{"large", 2, "16Gi"}, {"xlarge", 4, "32Gi"}, {"2xlarge", 8, "64Gi"}, {"4xlarge", 16, "128Gi"}, {"8xlarge", 32, "256Gi"},
		},
		pages: []string{"2Mi", "1Gi"},
	},
	{
		name: "n", version: "1", class: "network", display: "Network", attributes: network,
		sizes: []size{
			{"medium", 4, "4Gi"}, {"large", 4, "8Gi"}, {"xlarge", 8, "16Gi"},
			{"2xlarge", 16, "32Gi"}, {"4xlarge", 32, "64Gi"}, {"8xlarge", 64, "128Gi"},
		},
		pages: []string{"1Gi"},
	},
	{name: "o", version: "1", class: "overcommitted", display: "Overcommitted", attributes: overcommitted, sizes: general},
	{
		// The smallest size has less memory than one page of 1 GiB.
		name: "rt", version: "1", class: "realtime", display: "Realtime", attributes: realtime,
		sizes: general[1:], pages: []string{"1Gi"},
	},
	{
		name: "u", version: "1", class: "general.purpose", display: "General Purpose", attributes: plain,
		sizes: append([]size{twoMediums}, general...),
	},
}

func plain(*instancetypev1.VirtualMachineInstancetypeSpec) {}

// dedicated pins the guest's CPUs and gives QEMU's own threads another one.
func dedicated(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	spec.CPU.DedicatedCPUPlacement, spec.CPU.IsolateEmulatorThread = new(true), new(true)
}

func dedicatedWithIOThreads(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	dedicated(spec)
	spec.IOThreadsPolicy = new(v1.IOThreadsPolicyAuto)
}

// Pluggable CPUs would occupy the node from the start.
func exclusive(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	dedicatedWithIOThreads(spec)
	spec.CPU.NUMA = &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}}
	spec.CPU.MaxSockets = new(spec.CPU.Guest)
}

// network keeps CRI-O from disturbing the CPUs; other container runtimes ignore the annotations.
func network(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	dedicated(spec)
	spec.Annotations = map[string]string{
		"cpu-load-balancing.crio.io": "disable",
		"cpu-quota.crio.io":          "disable",
		"irq-load-balancing.crio.io": "disable",
	}
}

func realtime(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	network(spec)
	spec.CPU.NUMA = &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}}
	spec.CPU.Realtime = &v1.Realtime{}
}

func overcommitted(spec *instancetypev1.VirtualMachineInstancetypeSpec) {
	spec.Memory.OvercommitPercent = 50
}

// Instancetypes returns new objects.
func Instancetypes() []*instancetypev1.VirtualMachineClusterInstancetype {
	var out []*instancetypev1.VirtualMachineClusterInstancetype
	for _, s := range allSeries {
		for _, size := range s.sizes {
			out = append(out, s.types(size)...)
		}
	}
	return out
}

// types returns one type of the size for each page size.
func (s series) types(size size) []*instancetypev1.VirtualMachineClusterInstancetype {
	if len(s.pages) == 0 {
		return []*instancetypev1.VirtualMachineClusterInstancetype{s.instancetype(size, size.name, "")}
	}
	var out []*instancetypev1.VirtualMachineClusterInstancetype
	for i, page := range s.pages {
		name := size.name
		if i > 0 {
			name += strings.ToLower(page)
		}
		out = append(out, s.instancetype(size, name, page))
	}
	return out
}

func (s series) instancetype(size size, name, page string) *instancetypev1.VirtualMachineClusterInstancetype {
	object := &instancetypev1.VirtualMachineClusterInstancetype{
		TypeMeta: metav1.TypeMeta{APIVersion: instancetypev1.SchemeGroupVersion.String(), Kind: "VirtualMachineClusterInstancetype"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.name + s.version + "." + name,
			Annotations: map[string]string{displayAnnotation: s.display},
		},
	}
	spec := &object.Spec
	spec.CPU.Guest, spec.Memory.Guest = size.cpus, resource.MustParse(size.memory)
	if page != "" {
		spec.Memory.Hugepages = &v1.Hugepages{PageSize: page}
	}
	s.attributes(spec)
	object.Labels = map[string]string{
		prefix + "class": s.class, prefix + "size": name, prefix + "version": s.version,
		prefix + "cpu": strconv.FormatUint(uint64(size.cpus), 10), prefix + "memory": size.memory,
	}
	addLabel(object.Labels, "hugepages", page)
	addSwitch(object.Labels, "dedicatedCPUPlacement", spec.CPU.DedicatedCPUPlacement != nil)
	addSwitch(object.Labels, "isolateEmulatorThread", spec.CPU.IsolateEmulatorThread != nil)
	addSwitch(object.Labels, "numa", spec.CPU.NUMA != nil)
	addSwitch(object.Labels, "realtime", spec.CPU.Realtime != nil)
	seal(object, &object.Spec)
	return object
}
