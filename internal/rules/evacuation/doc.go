// Package evacuation decides what becomes of a guest when its launcher pod is to be evicted:
// what the eviction is answered (Judge), and what is done for a VMI that is marked
// afterwards (Decide).
//
//	            eviction: Judge                     migrated
//	not marked ─────────────────> evacuationNodeName ─────────> not marked, on another node
//	     ^                               │
//	     └───────────────────────────────┘ the cordon of the node is taken back
//
// The mark is all that is remembered: virt-api sets it, virt-controller works by it and
// clears it. Both may die at any moment; a drain asks again every few seconds, and
// migrations are named by what they are for, so that one is never made twice.
//
// It must not import a client, and it does not choose which migration may begin, or when:
// package migration does.
package evacuation

import (
	v1 "kubevirt.io/api/core/v1"
)

// CordonAnnotation names, on a VMI that is marked, the node that was cordoned when the
// eviction came. Only such an evacuation ends when the node is schedulable again: evictions
// also come from nodes that were never cordoned. KubeVirt has no field for it.
// See decision 309.
const CordonAnnotation = "drydock.dev/evacuation-of-cordoned-node"

// Strategy is what a VMI asks for when its pod is evicted: its own word, or else the
// cluster's.
func Strategy(vmi *v1.VirtualMachineInstance, cluster v1.EvictionStrategy) v1.EvictionStrategy {
	if s := vmi.Spec.EvictionStrategy; s != nil && *s != "" {
		return *s
	}
	return cluster
}

// Mark returns the VMI marked for the evacuation of the node that it is on; cordoned says
// whether the node takes no new pods at this moment.
func Mark(vmi *v1.VirtualMachineInstance, cordoned bool) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	out.Status.EvacuationNodeName = vmi.Status.NodeName
	delete(out.Annotations, CordonAnnotation)
	if cordoned {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[CordonAnnotation] = vmi.Status.NodeName
	}
	return out
}

// Clear returns the VMI without the mark.
func Clear(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	out.Status.EvacuationNodeName = ""
	delete(out.Annotations, CordonAnnotation)
	return out
}

// ofCordon reports whether the VMI is marked because its node was cordoned.
func ofCordon(vmi *v1.VirtualMachineInstance) bool {
	node := vmi.Status.EvacuationNodeName
	return node != "" && vmi.Annotations[CordonAnnotation] == node
}
