package migrationproxy

import (
	"fmt"
	"net"
	"net/netip"
)

// Interface is virt-handler's interface on configuration.migrations.network.
const Interface = "migration0"

// NetworkInterface is an interface of virt-handler's pod.
type NetworkInterface struct {
	Name      string
	Addresses []netip.Addr
}

// ChooseAddress returns this node's address for migrations: the pod's, or the one on the configured network. missing is
// the reason why that can't be used.
func ChooseAddress(network string, pod netip.Addr, interfaces []NetworkInterface) (address netip.Addr, missing string) {
	if network == "" {
		return pod, ""
	}
	var chosen netip.Addr
	there := false
	for _, i := range interfaces {
		if i.Name != Interface {
			continue
		}
		there = true
		for _, candidate := range i.Addresses {
			candidate = candidate.Unmap()
			reachable := candidate.IsValid() && candidate.IsGlobalUnicast() && candidate.Zone() == ""
			// Other nodes most likely reach the family of the pod's address.
			if reachable && (!chosen.IsValid() || chosen.Is4() != pod.Is4() && candidate.Is4() == pod.Is4()) {
				chosen = candidate
			}
		}
	}
	switch {
	case chosen.IsValid():
		return chosen, ""
	case there:
		return pod, fmt.Sprintf("the interface %s has no address that other nodes reach", Interface)
	default:
		return pod, fmt.Sprintf("this pod has no interface %s", Interface)
	}
}

// OwnAddress returns ChooseAddress for this process. noted gets each new missing.
func OwnAddress(podIP string, network func() string, noted func(missing string)) func() (netip.Addr, error) {
	last := ""
	return func() (netip.Addr, error) {
		pod, err := netip.ParseAddr(podIP)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("reading the pod's address: %w", err)
		}
		configured := network()
		var interfaces []NetworkInterface
		if configured != "" {
			if interfaces, err = ownInterfaces(); err != nil {
				return netip.Addr{}, err
			}
		}
		address, missing := ChooseAddress(configured, pod, interfaces)
		if missing != last && missing != "" {
			noted(missing)
		}
		last = missing
		return address, nil
	}
}

func ownInterfaces() ([]NetworkInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing this pod's interfaces: %w", err)
	}
	var list []NetworkInterface
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of the interface %s: %w", i.Name, err)
		}
		found := NetworkInterface{Name: i.Name}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				found.Addresses = append(found.Addresses, prefix.Addr())
			}
		}
		list = append(list, found)
	}
	return list, nil
}
