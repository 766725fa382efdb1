package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

const echoAddress = ":7777"

func serveEcho(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", echoAddress)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", echoAddress, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		caller, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for callers: %w", err)
		}
		go func() {
			defer func() { _ = caller.Close() }()
			_, _ = io.Copy(caller, caller) // a lost connection is no error
		}()
	}
}
