// Package startup waits in a pod's startup probe until the program listens: the kubelet probes from a container's start,
// and would emit a warning for each refused connection. It must import only the standard library.
package startup

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

const pause = 50 * time.Millisecond

// Listens returns when a program in the pod accepts connections.
func Listens(ctx context.Context, port int) error {
	next := time.NewTicker(pause)
	defer next.Stop()
	address := net.JoinHostPort("localhost", strconv.Itoa(port))
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens at port %d: %w", port, err)
		case <-next.C:
		}
	}
}
