package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// attempts is how many free ports are tried. Somebody else may have the port of the other protocol.
const attempts = 32

// listen listens on this computer only, on one port of both its addresses. A browser tries either for a name of
// localhost: if another user listened on the other one, the browser would run that user's page and give it the code.
func listen(ctx context.Context, wanted int) ([]net.Listener, int, error) {
	var problem error
	for range attempts {
		listeners, port, err := listenBoth(ctx, wanted)
		if err == nil {
			return listeners, port, nil
		}
		if problem = err; wanted != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, 0, fmt.Errorf("listening on this computer: %w; choose another --port, or 0 for a free one", problem)
}

func listenBoth(ctx context.Context, wanted int) ([]net.Listener, int, error) {
	first, err := listenOn(ctx, "127.0.0.1", wanted)
	if err != nil {
		return nil, 0, err
	}
	bound, isTCP := first.Addr().(*net.TCPAddr)
	if !isTCP {
		return nil, 0, errors.Join(errors.New("the listener is not of TCP"), first.Close())
	}
	second, err := listenOn(ctx, "::1", bound.Port)
	switch {
	case err == nil:
		return []net.Listener{first, second}, bound.Port, nil
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		// Without IPv6 nobody can listen there.
		return []net.Listener{first}, bound.Port, nil
	}
	return nil, 0, errors.Join(err, first.Close())
}

func listenOn(ctx context.Context, address string, port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}
