// Package oneguestproof proves that a virtual machine never has two guests, as far as Drydock's decisions go: it
// explores every state that they reach together with all other participants in a VM's life.
//
// It owns that exploration, which is a test. It must not have a rule of its own: it calls packages vmicontroller,
// vmcontroller, launcherpod and vmihandler, which decide for virt-controller and virt-handler.
//
// The participants:
//
//	virt-controller  two processes at once: one sees the current state, the other any
//	                 earlier state of its caches, and it may crash between any two of
//	                 its requests
//	virt-handler     one for each node; late with everything, or absent
//	kubelet          one for each node; continues a pod whose object is gone
//	scheduler, garbage collector, the node's life and death
//	a user           deletes VMIs and pods, with their dependents orphaned and by force;
//	                 removes owner references and finalizers, and labels as far as the
//	                 policy config/rbac/pod-policy.yaml lets an editor
//
// At most one QEMU of the VM runs in every state (G1). The model can get from every state to one in which the VM runs
// and no pod of an earlier VMI is left (G2); the user's only help is to bring a node back. At most one of two VMs
// with a disk on one claim has a guest (G3); a separate, smaller model covers this.
//
// The model has time as far as the rules depend on it: the grace period of a guest whose pod's object is gone passes
// only when the kubelet of a responsive node has ended the pod's processes. That kubelets keep this time is assumed,
// not proven.
package oneguestproof
