package portforward

import (
	"context"
	"fmt"
	"net"
	"sync"

	"drydock.dev/drydock/internal/virtctl/relay"
)

// listenTCP opens the local port and returns a function that serves it until the context ends. Each connection
// has its own stream.
func (f *forwarder) listenTCP(ctx context.Context, p port, address string) (net.Addr, func() error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return listener.Addr(), func() error {
		stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
		defer stop()
		var connections sync.WaitGroup
		defer connections.Wait()
		for {
			local, err := listener.Accept()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("accepting on %s: %w", address, err)
			}
			connections.Go(func() { f.complain(f.serveTCP(ctx, p, local)) })
		}
	}, nil
}

func (f *forwarder) serveTCP(ctx context.Context, p port, local net.Conn) error {
	remote, err := f.dial(ctx, p)
	if err != nil {
		_ = local.Close()
		return err
	}
	return relay.Conns(ctx, local, remote)
}
