// Package oneguest proves that a virtual machine never has two guests, as far as
// the decisions of Drydock's parts go: it explores every state that they reach
// together with everyone else who takes part in a VM's life.
//
// It owns that exploration, which is a test, and no code that runs. It must not
// hold a rule of its own: what virt-controller and virt-handler do is decided by
// packages vmilifecycle, vmlifecycle, launcherpod and guestlifecycle, whose functions it
// calls.
//
// The participants:
//
//	virt-controller  two processes at once: one sees what is so, the other what
//	                 its caches showed at any time before, and it may be cut off
//	                 between any two of its requests
//	virt-handler     one for each node; late with everything, or absent
//	kubelet          one for each node; goes on with a pod whose object is gone
//	scheduler, garbage collector, the node's life and death
//	a user           deletes VMIs and pods, with their dependents orphaned and by
//	                 force; removes owner references and finalizers, and labels as far
//	                 as the policy config/rbac/pod-policy.yaml lets an editor
//
// In every state at most one QEMU of the VM runs (G1). From every state a way leads
// to a state in which the VM runs and no pod is left of earlier VMIs (G2), and
// the user need do nothing for it but bring a node back. Of two VMs with a disk on one
// claim, at most one has a guest (G3), in a smaller model of its own.
//
// Time is in the model as far as the rules depend on it: the time that a guest is
// given after its pod's object is gone passes only when the kubelet of a node
// that answers has ended the pod's processes. That kubelets keep this time is
// assumed, not proven.
package oneguest
