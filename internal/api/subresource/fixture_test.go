package subresource

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func machine(strategy v1.VirtualMachineRunStrategy, pending ...v1.VirtualMachineStateChangeRequest) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros"}}
	vm.Spec.RunStrategy = &strategy
	vm.Status.StateChangeRequests = pending
	return vm
}

func instance(phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros", UID: "uid-1"}}
	vmi.Status.Phase = phase
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(30))
	return vmi
}

// refusal is a conflict in the words that virtctl shows.
func refusal(sentence string) string {
	return `Operation cannot be fulfilled on virtualmachine.kubevirt.io "vm-cirros": ` + sentence
}
