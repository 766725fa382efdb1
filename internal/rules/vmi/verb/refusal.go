// Package verb decides the effect of users' verbs (start, stop, pause, console, …) by the state of a VM or its guest, and
// refuses them with the status codes and messages of the KubeVirt API.
//
// It must not decide how VMs change by themselves (package vmcontroller), or which verbs a user may use.
package verb

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
)

// Conflict refuses a verb in the VM's present state, with the messages that virtctl's users know.
func Conflict(vm *v1.VirtualMachine, format string, args ...any) error {
	return apierrors.NewConflict(v1.Resource("virtualmachine"), vm.Name, fmt.Errorf(format, args...))
}

// GuestConflict refuses a verb in the VMI's present state.
func GuestConflict(vmi *v1.VirtualMachineInstance, sentence string) error {
	return apierrors.NewConflict(v1.Resource("virtualmachineinstance"), vmi.Name, fmt.Errorf("%s", sentence))
}
