// Package scale measures the costs of many VMIs for Drydock's central components.
//
// Real are etcd, kube-apiserver, scheduler, kube-controller-manager, virt-api (admission) and
// virt-controller, as they are deployed. Simulated are the nodes and kubelets (kwok marks pods
// Running and removes deleted ones), and virt-handler: an agent makes its writes, with the
// functions that decide virt-handler's own and with its service account. No guest runs.
//
// It must not be taken for a measurement of nodes or guests, which packages start and memory
// measure.
//
// The steps for one number of VMIs:
//
//	virt-controller anew ─> n VMIs created ─> all Running ─> rest ─> virt-controller
//	killed and back ─> all deleted ─> all gone
//
// The cost of a life is the CPU time of the creation and the deletion. Rest and restart are counted
// separately.
package scale
