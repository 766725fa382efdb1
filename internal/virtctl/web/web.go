// Package web is virtctl web: it serves the web console on this computer, with the rights of the user's kubeconfig. It
// owns the listener, the address and the browser's start. It must not decide which requests pass: package web of the
// server does.
package web

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/virtctl/env"
	server "drydock.dev/drydock/internal/web"
	"drydock.dev/drydock/internal/web/assets"
)

type options struct {
	port      int
	noBrowser bool
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Show the virtual machines in a browser, with your own rights",
		Long: "Serve the web console on this computer, with the rights of your kubeconfig, until Ctrl-C.\n" +
			"The address is good for one browser, within five minutes: don't give it to anybody.",
		Example: e.Example("# Open the web console in the browser:", "web",
			"# Only print its address:", "web --no-browser --port=8123"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return fmt.Errorf("--port must be from 0 to 65535, not %d", o.port)
			}
			return run(cmd.Context(), e, o, assets.Files())
		},
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "local port to listen on; 0 takes a free one")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "start no browser, and print only the address")
	return cmd
}

func run(ctx context.Context, e *env.Env, o options, pages fs.FS) error {
	settings, err := optionsOf(e)
	if err != nil {
		return err
	}
	settings.Pages = pages
	listeners, port, err := listen(ctx, o.port)
	if err != nil {
		return err
	}
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	settings.Origin = origin(port)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !signal.Ignored(syscall.SIGHUP) {
		// A terminal that is closed ends the console, too, and not before the file with the address is removed.
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	console, err := server.New(ctx, settings)
	if errors.Is(err, server.ErrNoPages) {
		return errors.New("this virtctl was built without the web console: use the one of a release, or `make web` and build again")
	}
	if err != nil {
		return err
	}
	address, err := console.Address()
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, address)
	fmt.Fprintln(e.Err, "The address is good for one browser, within five minutes: don't give it to anybody. Ctrl-C ends the web console.")
	if !o.noBrowser {
		forget, err := openBrowser(ctx, e, address)
		if err != nil {
			fmt.Fprintf(e.Err, "No browser was started: %v. Open the address in one of this computer.\n", err)
		}
		defer forget()
	}
	return console.Serve(listeners...)
}

// optionsOf returns all but the origin and the pages.
func optionsOf(e *env.Env) (server.Options, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return server.Options{}, err
	}
	config, err := e.Config()
	if err != nil {
		return server.Options{}, err
	}
	upstream, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return server.Options{}, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transport, err := transportOf(config)
	if err != nil {
		return server.Options{}, err
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return server.Options{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	current := raw.CurrentContext
	if named := e.Flags.Context; named != nil && *named != "" {
		current = *named
	}
	return server.Options{
		Upstream: upstream, Transport: transport,
		About: server.About{Namespace: namespace, Context: current, Server: upstream.String(), Version: version.Version},
	}, nil
}

// transportOf returns the user's way to the API server, by HTTP/1.1, since a WebSocket can't be upgraded from HTTP/2.
func transportOf(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.UserAgent = "virtctl-web"
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing requests to %s: %w", config.Host, err)
	}
	return transport, nil
}

// origin returns an origin that nobody had before: another user's server may have left pages and workers for this port in
// the browser, but under another name.
func origin(port int) string {
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	return "http://" + net.JoinHostPort(hex.EncodeToString(name[:])+".localhost", strconv.Itoa(port))
}
