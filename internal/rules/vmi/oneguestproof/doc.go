// Package oneguestproof proves that Drydock's decisions never give a VM two guests: it explores every state that they
// reach together with all other participants in a VM's life.
//
// It owns that exploration, which is a test. It must not have a rule of its own: it calls packages vmicontroller,
// vmcontroller, launcherpod and vmihandler.
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
// In every state, at most one QEMU of the VM runs (G1). From every state the model can reach one in which the VM runs
// and no pod of an earlier VMI is left (G2); the user helps only by bringing a node back. At most one of two VMs with a
// disk on one claim has a guest (G3), in a separate, smaller model.
//
// Time: the grace period of a guest whose pod object is gone passes only when the kubelet of a responsive node has ended
// the pod's processes. That kubelets keep this time is assumed, not proven.
package oneguestproof
