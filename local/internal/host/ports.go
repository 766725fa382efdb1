package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// TakenPorts names the ports of the control plane that another program listens on at
// every address, so that the control plane could not, at its own.
func TakenPorts() []string { return takenPorts(layout.Ports) }

func takenPorts(ports []int) []string {
	var taken []string
	for _, port := range ports {
		// The whole of 127.0.0.0/8 is ours; an address that nobody uses conflicts only
		// with a program that listens everywhere.
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.77.77.77", strconv.Itoa(port)))
		if errors.Is(err, unix.EADDRINUSE) {
			taken = append(taken, fmt.Sprintf("port %d is used by another program (the control plane listens there): end it; `ss -ltnp sport = :%d` names it", port, port))
		}
		if err == nil {
			_ = listener.Close() // nobody has connected
		}
	}
	return taken
}
