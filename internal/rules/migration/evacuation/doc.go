// Package evacuation decides about evictions of launcher pods: the answer to the eviction (Judge),
// and the actions for a marked VMI (Decide).
//
//	            eviction: Judge                     migrated
//	not marked ─────────────────> evacuationNodeName ─────────> not marked, on another node
//	     ^                               │
//	     └───────────────────────────────┘ the node is uncordoned
//
// The mark is the only state: virt-api sets it, virt-controller acts on it and clears it. Both may
// crash at any time: a drain repeats its evictions every few seconds, and a migration's name
// follows from its purpose, so that it is never created twice.
//
// The package must not import a client. Package migration chooses which migration may begin, and when.
package evacuation

import (
	v1 "kubevirt.io/api/core/v1"
)

// CordonAnnotation names, on a marked VMI, the node that was cordoned at the eviction. Only such an evacuation ends when
// the node is schedulable again: evictions also come from nodes that were never cordoned. KubeVirt has no field for it. A
// user who can change the VMI can change it, and so keep the guest on its node, as by a node selector.
const CordonAnnotation = "drydock.dev/evacuation-of-cordoned-node"

// Strategy returns a VMI's eviction strategy, which defaults to the cluster's.
func Strategy(vmi *v1.VirtualMachineInstance, cluster v1.EvictionStrategy) v1.EvictionStrategy {
	if s := vmi.Spec.EvictionStrategy; s != nil && *s != "" {
		return *s
	}
	return cluster
}

// Mark returns the marked VMI; cordoned means that its node is unschedulable.
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
