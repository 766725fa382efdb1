// Package startup waits until a program that has just been started listens. The startup probe of its pod runs it: the
// kubelet probes from the start of a container, and emits a warning for each refused connection.
package startup

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// pause is the interval between two attempts to connect.
const pause = 50 * time.Millisecond

// Listens returns when a program in the same pod accepts connections at the port.
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
