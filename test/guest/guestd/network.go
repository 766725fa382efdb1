package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

const (
	// patience is the longest wait for addresses before the guest is ready without them.
	patience = 10 * time.Second
	// linkPatience is the longest wait for a card whose cable may be pulled.
	linkPatience = 3 * time.Second
)

// network configures every network card: by cloud-init's data, or by DHCP.
type network struct {
	configs []cloudconfig.NIC

	mu    sync.Mutex
	cards map[string]context.CancelFunc
}

func newNetwork(configs []cloudconfig.NIC) *network {
	return &network{configs: configs, cards: map[string]context.CancelFunc{}}
}

// start configures all existing cards.
func (n *network) start(ctx context.Context) error {
	if err := command("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing the network cards: %w", err)
	}
	for _, card := range interfaces {
		n.add(ctx, card.Name)
	}
	return nil
}

// add starts to configure a card.
func (n *network) add(ctx context.Context, name string) {
	card, err := net.InterfaceByName(name)
	if err != nil || card.Flags&net.FlagLoopback != 0 || len(card.HardwareAddr) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cards[name] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	n.cards[name] = cancel
	go n.configure(ctx, card)
}

func (n *network) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cancel := n.cards[name]; cancel != nil {
		cancel()
		delete(n.cards, name)
	}
}

func (n *network) configure(ctx context.Context, card *net.Interface) {
	config := cloudconfig.Choose(n.configs, card.Name, card.HardwareAddr.String())
	for _, args := range ipCommands(config, card.Name) {
		report("configuring "+card.Name, command("ip", args...))
	}
	report("naming the name servers", addNameservers(config.Nameservers))
	if !config.DHCP {
		return
	}
	name, err := os.Hostname()
	report("asking for the name", err)
	supervise(ctx, "/sbin/udhcpc", "-f", "-i", card.Name, "-s", "/etc/udhcpc/script",
		"-O", "staticroutes", "-O", "mtu", "-O", "search", "-x", "hostname:"+name,
		"-T", "1", "-t", "5", "-A", "1")
}

func addNameservers(servers []string) error {
	if len(servers) == 0 {
		return nil
	}
	file, err := os.OpenFile("/etc/resolv.conf", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if _, err := fmt.Fprintf(file, "nameserver %s\n", server); err != nil {
			break // Close reports the error again
		}
	}
	return file.Close()
}

// wait returns when every card has an address, or after patience. The kernel reports when addresses change.
func (n *network) wait(ctx context.Context) {
	changes, err := listenKernel(unix.NETLINK_ROUTE, unix.RTMGRP_IPV4_IFADDR|unix.RTMGRP_LINK)
	if err != nil {
		say("waiting for the network: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	recheck := time.AfterFunc(linkPatience, func() {
		if !n.missing(true) {
			cancel()
		}
	})
	defer recheck.Stop()
	if !n.missing(false) {
		_ = changes.Close()
		return
	}
	messages(ctx, changes, func([]byte) {
		if !n.missing(time.Since(began) > linkPatience) {
			cancel()
		}
	})
}

// missing reports whether a card still has no address, with onlyLinked only among the cards with a link.
func (n *network) missing(onlyLinked bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.cards {
		card, err := net.InterfaceByName(name)
		if err != nil || onlyLinked && card.Flags&net.FlagRunning == 0 {
			continue
		}
		if ipv4Of(card) == "" {
			return true
		}
	}
	return false
}

// ipv4Of returns a card's first IPv4 address, or "".
func ipv4Of(card *net.Interface) string {
	addresses, err := card.Addrs()
	if err != nil {
		return ""
	}
	for _, address := range addresses {
		if network, is := address.(*net.IPNet); is && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	return ""
}

// ipCommands lists the calls of ip(8) that configure a card.
func ipCommands(c cloudconfig.NIC, name string) [][]string {
	var calls [][]string
	if c.MTU > 0 {
		calls = append(calls, []string{"link", "set", name, "mtu", strconv.Itoa(c.MTU)})
	}
	calls = append(calls, []string{"link", "set", name, "up"})
	for _, address := range c.Addresses {
		calls = append(calls, []string{"addr", "add", address, "dev", name})
	}
	for _, route := range c.Routes {
		calls = append(calls, []string{"route", "add", route.To, "via", route.Via, "dev", name})
	}
	return calls
}
