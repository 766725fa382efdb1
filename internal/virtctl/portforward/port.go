package portforward

import (
	"fmt"
	"strconv"
	"strings"
)

type port struct {
	protocol string
	// local may be 0 for any free port.
	local, remote uint16
}

const portSyntax = "[PROTOCOL/]PORT[:PORT], for example 8080:80 or udp/5353"

// A single port is both; an empty local one, as in :80, is any free one.
func parsePort(text string) (port, error) {
	p := port{protocol: "tcp"}
	numbers := text
	if protocol, rest, found := strings.Cut(text, "/"); found {
		p.protocol, numbers = strings.ToLower(protocol), rest
	}
	if p.protocol != "tcp" && p.protocol != "udp" {
		return port{}, fmt.Errorf("port %q: the protocol must be tcp or udp: write %s", text, portSyntax)
	}
	local, remote, both := strings.Cut(numbers, ":")
	if !both {
		remote = local
	}
	var err error
	if local != "" || !both {
		p.local, err = number(local)
	}
	if err == nil {
		p.remote, err = number(remote)
	}
	if err != nil {
		return port{}, fmt.Errorf("port %q: %w: write %s", text, err, portSyntax)
	}
	return p, nil
}

func number(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", text)
	}
	return uint16(n), nil
}

// --stdio has no local side.
func parseRemote(text string) (port, error) {
	if strings.Contains(text, ":") {
		return port{}, fmt.Errorf("port %q: with --stdio there is no local port: write [PROTOCOL/]PORT", text)
	}
	return parsePort(text)
}
