// Package scale measures what many VMIs cost Drydock's central components.
//
// What is real: etcd, kube-apiserver, scheduler, kube-controller-manager, virt-api
// (admission) and virt-controller, all as they are deployed. What is simulated:
// the nodes and the kubelets (kwok marks pods Running and takes deleted ones
// away), and virt-handler: an agent here makes its writes, by the same functions
// that decide virt-handler's own, with its service account. No guest runs.
//
// It must not be taken for a measurement of nodes or guests; those are measured
// by package start and package memory.
//
// One size is measured so:
//
//	virt-controller anew ─> n VMIs created ─> all Running ─> rest ─> virt-controller
//	killed and back ─> all deleted ─> all gone
//
// The cost of a life is the CPU time of the creation and the deletion; rest and
// restart are counted apart.
package scale
