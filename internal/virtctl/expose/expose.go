// Package expose is virtctl expose: it creates a Service for a machine or for the machines of a replica set. It must
// not change the machine.
package expose

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type options struct {
	kind, name     string
	serviceName    string
	serviceType    string
	port           int32
	nodePort       int32
	portName       string
	targetPort     string
	protocol       string
	clusterIP      string
	externalIP     string
	loadBalancerIP string
	family         string
	families       []string
	familyPolicy   string
	dryRun         string
	output         string
}

var kinds = map[string]string{
	"vm": "virtualmachine", "vms": "virtualmachine", "virtualmachine": "virtualmachine", "virtualmachines": "virtualmachine",
	"vmi": "virtualmachineinstance", "vmis": "virtualmachineinstance",
	"virtualmachineinstance": "virtualmachineinstance", "virtualmachineinstances": "virtualmachineinstance",
	"vmirs": "virtualmachineinstancereplicaset", "vmirss": "virtualmachineinstancereplicaset",
	"virtualmachineinstancereplicaset":  "virtualmachineinstancereplicaset",
	"virtualmachineinstancereplicasets": "virtualmachineinstancereplicaset",
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "expose vm|vmi|vmirs NAME",
		Short: "Make a Service that leads to a virtual machine or a replica set",
		Example: e.Example("# SSH of 'vm-cirros' inside the cluster:", "expose vm vm-cirros --port=22 --name=cirros-ssh",
			"# On a port of every node:", "expose vmi vm-cirros --port=22 --name=cirros-ssh --type=NodePort",
			"# One address for all machines of a replica set:", "expose vmirs web --port=80 --name=web",
			"# Only see what would be made:", "expose vm vm-cirros --port=22 --name=cirros-ssh --dry-run=client -o yaml"),
		Args: env.ExactArgs("vm, vmi or vmirs", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return run(cmd.Context(), e, o)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.serviceName, "name", "", "name of the Service")
	flags.Int32Var(&o.port, "port", 0, "port of the Service; without it the ports that the machine declares")
	flags.StringVar(&o.targetPort, "target-port", "", "port in the guest, by number or name; the same as --port if not set")
	flags.StringVar(&o.protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.StringVar(&o.portName, "port-name", "", "name of the port")
	flags.Int32Var(&o.nodePort, "node-port", 0, "port of the nodes, with --type=NodePort; a free one if not set")
	flags.StringVar(&o.serviceType, "type", "ClusterIP", "ClusterIP, NodePort or LoadBalancer")
	flags.StringVar(&o.clusterIP, "cluster-ip", "", "address of the Service in the cluster; None makes it headless")
	flags.StringVar(&o.externalIP, "external-ip", "", "another address that the Service accepts")
	flags.StringVar(&o.loadBalancerIP, "load-balancer-ip", "", "address of the load balancer")
	flags.StringVar(&o.family, "ip-family", "", "IPv4, IPv6 or 'IPv4,IPv6'")
	flags.StringVar(&o.familyPolicy, "ip-family-policy", "", "SingleStack, PreferDualStack or RequireDualStack")
	flags.StringVar(&o.dryRun, "dry-run", "none", "none, client (only show it) or server (have it checked)")
	flags.StringVarP(&o.output, "output", "o", "", "json or yaml")
}

func (o *options) complete(args []string) error {
	kind, known := kinds[strings.ToLower(args[0])]
	if !known {
		return fmt.Errorf("the first argument must be vm, vmi or vmirs, not %q", args[0])
	}
	o.kind, o.name = kind, args[1]
	if o.serviceName == "" {
		return fmt.Errorf("--name is missing: it names the Service")
	}
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--port must be from 1 to 65535, not %d", o.port)
	}
	protocol, err := env.OneOf("protocol", o.protocol, "TCP", "UDP", "SCTP")
	if err != nil {
		return err
	}
	o.protocol = protocol
	if o.serviceType, err = env.OneOf("type", o.serviceType, "ClusterIP", "NodePort", "LoadBalancer"); err != nil {
		return err
	}
	if o.family != "" {
		for part := range strings.SplitSeq(o.family, ",") {
			family, err := env.OneOf("ip-family", part, "IPv4", "IPv6")
			if err != nil {
				return err
			}
			o.families = append(o.families, family)
		}
	}
	if o.familyPolicy != "" {
		if o.familyPolicy, err = env.OneOf("ip-family-policy", o.familyPolicy, "SingleStack", "PreferDualStack", "RequireDualStack"); err != nil {
			return err
		}
	}
	if o.output != "" {
		if err := env.CheckFormat(o.output); err != nil {
			return err
		}
	}
	o.dryRun, err = env.OneOf("dry-run", o.dryRun, "none", "client", "server")
	return err
}

func run(ctx context.Context, e *env.Env, o options) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	s, err := look(ctx, c, namespace, o)
	if err != nil {
		return fmt.Errorf("exposing %s %s: %w", o.kind, o.name, err)
	}
	service, err := o.service(namespace, s)
	if err != nil {
		return fmt.Errorf("exposing %s %s: %w", o.kind, o.name, err)
	}
	if o.dryRun != "client" {
		var createOptions metav1.CreateOptions
		if o.dryRun == "server" {
			createOptions.DryRun = []string{metav1.DryRunAll}
		}
		created, err := c.Core().Services(service.Namespace).Create(ctx, service, createOptions)
		if err != nil {
			return fmt.Errorf("creating Service %s: %w", service.Name, err)
		}
		service = created
	}
	if o.output != "" {
		service.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		return env.Print(e.Out, o.output, service)
	}
	message := "Service %s successfully exposed for %s %s"
	if o.dryRun != "none" {
		message += " (dry run)"
	}
	fmt.Fprintf(e.Out, message+"\n", o.serviceName, o.kind, o.name)
	return nil
}

func look(ctx context.Context, c *client.Client, namespace string, o options) (subject, error) {
	switch o.kind {
	case "virtualmachine":
		vm, err := c.VM(ctx, namespace, o.name)
		if err != nil {
			return subject{}, err
		}
		if vm.Spec.Template == nil {
			return subject{}, fmt.Errorf("it has no template")
		}
		return ofMachine(vm.Name, &vm.Spec.Template.Spec)
	case "virtualmachineinstance":
		vmi, err := c.VMI(ctx, namespace, o.name)
		if err != nil {
			return subject{}, err
		}
		return ofMachine(vmi.Name, &vmi.Spec)
	default:
		rs, err := c.ReplicaSet(ctx, namespace, o.name)
		if err != nil {
			return subject{}, err
		}
		// The launcher pods of its VMIs inherit its labels. A Service supports labels only, no expressions.
		if rs.Spec.Selector == nil || len(rs.Spec.Selector.MatchLabels) == 0 {
			return subject{}, fmt.Errorf("replica set %s has no selector.matchLabels that a Service could use", rs.Name)
		}
		if len(rs.Spec.Selector.MatchExpressions) > 0 {
			return subject{}, fmt.Errorf("replica set %s selects by matchExpressions, which a Service cannot: use labels", rs.Name)
		}
		s := subject{selector: maps.Clone(rs.Spec.Selector.MatchLabels)}
		if rs.Spec.Template != nil {
			s.interfaces = rs.Spec.Template.Spec.Domain.Devices.Interfaces
		}
		return s, nil
	}
}
