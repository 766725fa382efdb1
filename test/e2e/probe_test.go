//go:build e2e

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
)

// TestReadinessComesFromTheGuest asks the guest in every way that a probe can: a
// VM is Ready when its guest says so, and no sooner.
func TestReadinessComesFromTheGuest(t *testing.T) {
	t.Parallel()
	handlers := map[string]v1.Handler{
		"by TCP":         {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(7777)}},
		"by HTTP":        {HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}},
		"by its agent":   {GuestAgentPing: &v1.GuestAgentPing{}},
		"by a command":   {Exec: &corev1.ExecAction{Command: []string{"test", "-f", "/tmp/ready"}}},
		"never, by TCP":  {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}},
		"never, by exec": {Exec: &corev1.ExecAction{Command: []string{"false"}}},
	}
	for way, handler := range handlers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			vmi := newVMI(ns, "probed")
			vmi.Spec.ReadinessProbe = &v1.Probe{Handler: handler, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1}
			g := boot(t, vmi)
			if way == "never, by TCP" || way == "never, by exec" {
				if ready(awaitRunning(t, ns, "probed")) {
					t.Error("the VMI is Ready though its guest never says so")
				}
				return
			}
			if way == "by a command" {
				if ready(awaitRunning(t, ns, "probed")) {
					t.Error("the VMI is Ready before its guest has said so")
				}
				g.run("touch /tmp/ready")
			}
			awaitVMI(t, ns, "probed", "condition Ready", ready)
		})
	}
}

// ready reports whether a VMI's condition Ready is true.
func ready(vmi *v1.VirtualMachineInstance) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
