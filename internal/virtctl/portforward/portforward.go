// Package portforward is virtctl port-forward: it connects local ports, or standard input and output, with a
// guest's ports. It must not interpret the data.
package portforward

import (
	"context"
	"fmt"
	"net"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/relay"
	"drydock.dev/drydock/internal/virtctl/target"
)

type options struct {
	target  target.Target
	ports   []port
	address string
	stdio   bool
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var address string
	var stdio bool
	cmd := &cobra.Command{
		Use:   "port-forward " + target.Syntax + " [PROTOCOL/]LOCAL_PORT[:TARGET_PORT]...",
		Short: "Forward local ports to a virtual machine",
		Long: "Forward local TCP or UDP ports to a virtual machine. It needs no Service and no route to the\n" +
			"pod network. With --stdio one port is joined with standard input and output.",
		Example: e.Example("# Local port 8080 to port 80 of the machine 'vm-cirros':", "port-forward vm/vm-cirros 8080:80",
			"# Several ports, one of them UDP, of a machine in the namespace 'lab':", "port-forward vmi/vm-cirros/lab 2222:22 udp/5353",
			"# As ssh's ProxyCommand:", "port-forward --stdio=true vmi/vm-cirros/lab 22"),
		Args: env.MinimumArgs(target.Syntax, "[PROTOCOL/]LOCAL_PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := parse(args, address, stdio)
			if err != nil {
				return err
			}
			return run(cmd.Context(), e, o)
		},
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "local address to listen on")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "join the port with standard input and output; for one port only")
	return cmd
}

func parse(args []string, address string, stdio bool) (options, error) {
	o := options{address: address, stdio: stdio}
	var err error
	if o.target, err = target.Parse(args[0]); err != nil {
		return options{}, err
	}
	if net.ParseIP(address) == nil {
		return options{}, fmt.Errorf("--address must be an IP address, not %q", address)
	}
	if stdio && len(args) != 2 {
		return options{}, fmt.Errorf("--stdio takes exactly one port, not %d", len(args)-1)
	}
	read := parsePort
	if stdio {
		read = parseRemote
	}
	for _, text := range args[1:] {
		p, err := read(text)
		if err != nil {
			return options{}, err
		}
		o.ports = append(o.ports, p)
	}
	return o, nil
}

type forwarder struct {
	env    *env.Env
	client *client.Client
	ref    client.Ref
}

func run(ctx context.Context, e *env.Env, o options) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	// A VM and its VMI have the same name, and the ports are the VMI's.
	ref := client.Ref{
		Resource:  client.VirtualMachineInstances,
		Namespace: o.target.In(namespace).Namespace,
		Name:      o.target.Name,
	}
	f := &forwarder{env: e, client: c, ref: ref}
	if o.stdio {
		// ssh ends its ProxyCommand by SIGHUP, which a process under nohup otherwise ignores.
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		remote, err := f.dial(ctx, o.ports[0])
		if err != nil {
			return err
		}
		return relay.Stdio(ctx, e.In, e.Out, remote)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range o.ports {
		listen := f.listenTCP
		if p.protocol == "udp" {
			listen = f.listenUDP
		}
		bound, serve, err := listen(ctx, p, net.JoinHostPort(o.address, strconv.Itoa(int(p.local))))
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Out, "forwarding %s %s to %d\n", p.protocol, bound, p.remote)
		group.Go(serve)
	}
	return group.Wait()
}

func (f *forwarder) dial(ctx context.Context, p port) (net.Conn, error) {
	remote, err := f.client.Stream(ctx, f.ref, "portforward/"+strconv.Itoa(int(p.remote))+"/"+p.protocol)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s port %d of VMI %s: %w", p.protocol, p.remote, f.ref.Name, err)
	}
	return remote, nil
}

// One connection's failure does not end the others.
func (f *forwarder) complain(err error) {
	if err != nil {
		fmt.Fprintf(f.env.Err, "error: %v\n", err)
	}
}
