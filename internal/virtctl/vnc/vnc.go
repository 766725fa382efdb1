// Package vnc is virtctl vnc: a machine's screen in the user's VNC viewer, on a local port, or as a picture. It
// must not interpret a viewer's stream.
package vnc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/relay"
)

type options struct {
	name      string
	address   string
	port      int
	proxyOnly bool
	viewer    string
}

// NewCommand returns vnc with its subcommand.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "vnc VMI",
		Short: "Open the screen of a virtual machine instance in a VNC viewer",
		Long: "Open the screen of a virtual machine instance in a VNC viewer that is installed here.\n" +
			"Several viewers of one machine can be open at the same time; all show the same.",
		Example: e.Example("# Show the screen of 'vm-cirros':", "vnc vm-cirros",
			"# Only offer it on a local port, for a viewer that you start yourself:", "vnc vm-cirros --proxy-only --port=5900"),
		Args: env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			if net.ParseIP(o.address) == nil {
				return fmt.Errorf("--address must be an IP address, not %q", o.address)
			}
			if o.port < 0 || o.port > 65535 {
				return fmt.Errorf("--port must be from 0 to 65535, not %d", o.port)
			}
			return run(cmd.Context(), e, o)
		},
	}
	cmd.Flags().StringVar(&o.address, "address", "127.0.0.1", "local address to listen on")
	cmd.Flags().IntVar(&o.port, "port", 0, "local port to listen on; 0 takes a free one")
	cmd.Flags().BoolVar(&o.proxyOnly, "proxy-only", false, "start no viewer; print the local port as JSON and serve it")
	cmd.Flags().StringVar(&o.viewer, "vnc-path", "", "the viewer to start, instead of the first that is found")
	cmd.AddCommand(newScreenshot(e))
	return cmd
}

func run(ctx context.Context, e *env.Env, o options) error {
	start, err := viewerFor(o)
	if err != nil {
		return err
	}
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	p := &proxy{env: e, client: c, ref: client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: o.name}}
	// The first stream is opened before anything is printed.
	if p.first, err = p.dial(ctx); err != nil {
		return err
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.first != nil {
			_ = p.first.Close()
		}
	}()
	address := net.JoinHostPort(o.address, strconv.Itoa(o.port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	bound, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return errors.Join(fmt.Errorf("listening on %s: it is no TCP socket", address), listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.serve(ctx, listener) })
	if o.proxyOnly {
		fmt.Fprintf(e.Out, "{\"port\":%d}\n", bound.Port)
		return group.Wait()
	}
	group.Go(func() error {
		defer cancel() // without its viewer the proxy is useless
		return show(ctx, e, start, start.arguments(o.address, bound.Port))
	})
	return group.Wait()
}

func show(ctx context.Context, e *env.Env, v viewer, arguments []string) error {
	command := exec.CommandContext(ctx, v.program, arguments...)
	command.Stdout, command.Stderr = e.Err, e.Err
	if err := command.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("running the VNC viewer %s: %w", v.program, err)
	}
	return nil
}

// The viewer is found before a connection is opened.
func viewerFor(o options) (viewer, error) {
	switch {
	case o.proxyOnly:
		return viewer{}, nil
	case o.viewer != "":
		// The file's name determines the form of the address.
		found, err := exec.LookPath(o.viewer)
		if err != nil {
			return viewer{}, fmt.Errorf("finding the VNC viewer of --vnc-path: %w", err)
		}
		base := filepath.Base(o.viewer)
		if strings.HasPrefix(base, "remote-viewer") || strings.HasPrefix(base, "vinagre") {
			return viewer{found, url}, nil
		}
		return viewer{found, doubleColon}, nil
	default:
		return find(runtime.GOOS, exec.LookPath)
	}
}

// proxy gives each connecting viewer its own stream.
type proxy struct {
	env    *env.Env
	client *client.Client
	ref    client.Ref

	mu    sync.Mutex
	first net.Conn
}

func (p *proxy) dial(ctx context.Context) (net.Conn, error) {
	remote, err := p.client.Stream(ctx, p.ref, "vnc")
	if err != nil {
		return nil, fmt.Errorf("connecting to the screen of VMI %s: %w", p.ref.Name, err)
	}
	return remote, nil
}

func (p *proxy) take(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	first := p.first
	p.first = nil
	p.mu.Unlock()
	if first != nil {
		return first, nil
	}
	return p.dial(ctx)
}

func (p *proxy) serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var viewers sync.WaitGroup
	defer viewers.Wait()
	for {
		local, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting a viewer: %w", err)
		}
		viewers.Go(func() {
			if err := p.join(ctx, local); err != nil {
				fmt.Fprintf(p.env.Err, "error: %v\n", err)
			}
		})
	}
}

func (p *proxy) join(ctx context.Context, local net.Conn) error {
	remote, err := p.take(ctx)
	if err != nil {
		_ = local.Close()
		return err
	}
	return relay.Conns(ctx, local, remote)
}
