package maintenance

import (
	"fmt"
	"strings"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/target"
)

type machine struct {
	resource client.Resource
	name     string
}

// NAME is a VM, and TYPE/NAME may be a VMI.
func named(text string) (machine, error) {
	if !strings.Contains(text, "/") {
		return machine{client.VirtualMachines, text}, nil
	}
	t, err := target.Parse(text)
	switch {
	case err != nil:
		return machine{}, err
	case t.Namespace != "":
		return machine{}, fmt.Errorf("%q names a namespace: use --namespace for that", text)
	case t.Kind == "vmi":
		return machine{client.VirtualMachineInstances, t.Name}, nil
	}
	return machine{client.VirtualMachines, t.Name}, nil
}

func (m machine) isVM() bool { return m.resource == client.VirtualMachines }

func (m machine) in(namespace string) client.Ref {
	return client.Ref{Resource: m.resource, Namespace: namespace, Name: m.name}
}

// String returns the machine for messages.
func (m machine) String() string {
	if m.isVM() {
		return "VM " + m.name
	}
	return "VMI " + m.name
}

func (m machine) word() string {
	if m.isVM() {
		return m.name
	}
	return "vmi/" + m.name
}
