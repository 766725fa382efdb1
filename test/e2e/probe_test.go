//go:build e2e

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// isReadyWhen checks that a VMI is not Ready before its guest has run a command, and is afterwards.
func isReadyWhen(t *testing.T, g *guest, command string) {
	t.Helper()
	if ready(awaitRunning(t, g.namespace, g.name)) {
		t.Error("the VMI is Ready before its guest has said so")
	}
	g.run(command)
	awaitVMI(t, g.namespace, g.name, "condition Ready", ready)
}

func ready(vmi *v1.VirtualMachineInstance) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
