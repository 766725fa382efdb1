// Package startup awaits that a program which has just been started listens. The startup probe of its pod runs it: the
// kubelet begins to ask when a container runs, and warns of each connection that is refused.
package startup

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// pause is between two attempts to connect.
const pause = 50 * time.Millisecond

// Listens returns when a program in the same pod takes connections at the port.
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
