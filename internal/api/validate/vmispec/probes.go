package vmispec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
)

func probes(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := probe(spec.LivenessProbe, len(spec.Networks) > 0, path.Child("livenessProbe"))
	if p := spec.LivenessProbe; p != nil && p.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(path.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return append(errs, probe(spec.ReadinessProbe, len(spec.Networks) > 0, path.Child("readinessProbe"))...)
}

func probe(p *v1.Probe, networked bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var chosen []string
	if p.Exec != nil {
		chosen = append(chosen, "exec")
	}
	if p.GuestAgentPing != nil {
		chosen = append(chosen, "guestAgentPing")
	}
	if p.HTTPGet != nil {
		chosen = append(chosen, "httpGet")
	}
	if p.TCPSocket != nil {
		chosen = append(chosen, "tcpSocket")
	}
	errs := fieldcheck.ExactlyOne(path, chosen, "a probe has exactly one of exec, guestAgentPing, httpGet and tcpSocket")
	if p.Exec != nil && len(p.Exec.Command) == 0 {
		errs = append(errs, field.Required(path.Child("exec", "command"), "is run in the guest"))
	}
	if p.HTTPGet != nil {
		errs = append(errs, probedPort(p.HTTPGet.Port, networked, path.Child("httpGet", "port"))...)
	}
	if p.TCPSocket != nil {
		errs = append(errs, probedPort(p.TCPSocket.Port, networked, path.Child("tcpSocket", "port"))...)
	}
	for _, figure := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds}, {"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if figure.value < 0 {
			errs = append(errs, field.Invalid(path.Child(figure.name), figure.value, "must not be negative"))
		}
	}
	return errs
}

// The kubelet reaches the port through the pod's network.
func probedPort(port intstr.IntOrString, networked bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !networked {
		errs = append(errs, field.Forbidden(path, "the guest has no network on which it could be probed; use exec or guestAgentPing"))
	}
	switch {
	case port.Type == intstr.Int:
		errs = append(errs, portNumber(port.IntValue(), path)...)
	case port.StrVal == "":
		errs = append(errs, field.Required(path, "names the port or its number"))
	}
	return errs
}

func portNumber(number int, path *field.Path) field.ErrorList {
	if number < 1 || number > 65535 {
		return field.ErrorList{field.Invalid(path, number, fmt.Sprintf("must be between %d and %d, inclusive", 1, 65535))}
	}
	return nil
}
