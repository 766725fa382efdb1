package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

// defaultRatio is the number of smaller parts in each greater one, when a preference spreads CPUs.
const defaultRatio = 2

const threadsOfCore = 2

type topology struct {
	kind   instancetypev1.PreferredCPUTopology
	across instancetypev1.SpreadAcross
	ratio  uint32
}

// current maps deprecated names.
var current = map[instancetypev1.PreferredCPUTopology]instancetypev1.PreferredCPUTopology{
	instancetypev1.DeprecatedPreferSockets: instancetypev1.Sockets,
	instancetypev1.DeprecatedPreferCores:   instancetypev1.Cores,
	instancetypev1.DeprecatedPreferThreads: instancetypev1.Threads,
	instancetypev1.DeprecatedPreferSpread:  instancetypev1.Spread,
	instancetypev1.DeprecatedPreferAny:     instancetypev1.Any,
}

// The default is sockets.
func topologyOf(preference *Source) topology {
	t := topology{kind: instancetypev1.Sockets, across: instancetypev1.SpreadAcrossSocketsCores, ratio: defaultRatio}
	if preference == nil {
		return t
	}
	if r := preference.Preference.PreferSpreadSocketToCoreRatio; r != 0 {
		t.ratio = r
	}
	cpu := preference.Preference.CPU
	if cpu == nil {
		return t
	}
	if kind := value(cpu.PreferredCPUTopology); kind != "" {
		t.kind = kind
		if now, renamed := current[kind]; renamed {
			t.kind = now
		}
	}
	if o := cpu.SpreadOptions; o != nil {
		if o.Across != nil {
			t.across = *o.Across
		}
		if o.Ratio != nil {
			t.ratio = *o.Ratio
		}
	}
	return t
}

// each returns the divisor of the number of CPUs that the topology requires.
func (t topology) each() uint64 {
	switch {
	case t.kind != instancetypev1.Spread:
		return 1
	case t.across == instancetypev1.SpreadAcrossCoresThreads:
		return threadsOfCore
	case t.across == instancetypev1.SpreadAcrossSocketsCoresThreads:
		return uint64(t.ratio) * threadsOfCore
	}
	return uint64(t.ratio)
}

// The number of CPUs must be a multiple of each. A guest has at least one.
func (t topology) of(vcpus uint32) (sockets, cores, threads uint32) {
	switch {
	case vcpus == 0:
		return 1, 1, 1
	case t.kind == instancetypev1.Cores:
		return 1, vcpus, 1
	case t.kind == instancetypev1.Threads:
		return 1, 1, vcpus
	case t.kind != instancetypev1.Spread:
		return vcpus, 1, 1
	case t.across == instancetypev1.SpreadAcrossCoresThreads:
		return 1, vcpus / threadsOfCore, threadsOfCore
	case t.across == instancetypev1.SpreadAcrossSocketsCoresThreads:
		return vcpus / threadsOfCore / t.ratio, t.ratio, threadsOfCore
	}
	return vcpus / t.ratio, t.ratio, 1
}

// spreads refuses a number of CPUs that does not fit the preferred topology.
func spreads(used Used) field.ErrorList {
	t := topologyOf(used.Preference)
	if uint64(used.Type.Type.CPU.Guest)%t.each() == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(typePath, fmt.Sprintf("the %d vCPUs of %s can't be spread as %s prefers it, by %d: "+
		"select an instance type with a multiple of that, or another preference",
		used.Type.Type.CPU.Guest, used.Type, used.Preference, t.each()))}
}
