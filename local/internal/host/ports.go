package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// TakenPorts returns the ports of the control plane on which another program listens at all
// addresses. The control plane could not listen there at its own address.
func TakenPorts() []string { return takenPorts(layout.Ports) }

func takenPorts(ports []int) []string {
	var taken []string
	for _, port := range ports {
		// All of 127.0.0.0/8 is ours. An unused address conflicts only with a program that listens
		// at all addresses.
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
