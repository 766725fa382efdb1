package expose

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

type subject struct {
	selector map[string]string
	// interfaces declare the ports for a user who names none.
	interfaces []v1.Interface
}

// ofMachine selects the one launcher pod of a VM or VMI: it always has the label with the machine's name, and
// no other machine's pod does. A name that is too long for a label is shortened as Drydock does it.
func ofMachine(name string, spec *v1.VirtualMachineInstanceSpec) (subject, error) {
	selector := map[string]string{v1.DeprecatedVirtualMachineNameLabel: layout.LabelValue(name)}
	return subject{selector, spec.Domain.Devices.Interfaces}, nil
}

func (o options) service(namespace string, s subject) (*corev1.Service, error) {
	ports, err := o.servicePorts(s.interfaces)
	if err != nil {
		return nil, err
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: o.serviceName, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceType(o.serviceType),
			Selector:       s.selector,
			Ports:          ports,
			ClusterIP:      o.clusterIP,
			LoadBalancerIP: o.loadBalancerIP,
		},
	}
	if o.externalIP != "" {
		service.Spec.ExternalIPs = []string{o.externalIP}
	}
	for _, family := range o.families {
		service.Spec.IPFamilies = append(service.Spec.IPFamilies, corev1.IPFamily(family))
	}
	if o.familyPolicy != "" {
		policy := corev1.IPFamilyPolicy(o.familyPolicy)
		service.Spec.IPFamilyPolicy = &policy
	}
	return service, nil
}

// servicePorts returns the port of the flags or, without one, those that the machine declares.
func (o options) servicePorts(interfaces []v1.Interface) ([]corev1.ServicePort, error) {
	if o.port != 0 {
		port := corev1.ServicePort{Name: o.portName, Port: o.port, Protocol: corev1.Protocol(o.protocol), NodePort: o.nodePort}
		port.TargetPort = intstr.FromInt32(o.port)
		if o.targetPort != "" {
			port.TargetPort = intstr.Parse(o.targetPort)
		}
		return []corev1.ServicePort{port}, nil
	}
	var ports []corev1.ServicePort
	for _, nic := range interfaces {
		for _, declared := range nic.Ports {
			ports = append(ports, declaredPort(declared, len(ports)+1))
		}
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("no port to expose: name one with --port; the machine declares none at its interfaces")
	}
	return ports, nil
}

// The ports of a Service with several need names.
func declaredPort(declared v1.Port, position int) corev1.ServicePort {
	name := declared.Name
	if name == "" {
		name = fmt.Sprintf("port-%d", position)
	}
	protocol := corev1.ProtocolTCP
	if declared.Protocol != "" {
		protocol = corev1.Protocol(strings.ToUpper(declared.Protocol))
	}
	return corev1.ServicePort{Name: name, Port: declared.Port, Protocol: protocol, TargetPort: intstr.FromInt32(declared.Port)}
}
