package cloudconfig

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// NIC is the configuration of one card in cloud-init's network data.
type NIC struct {
	// Name and MAC identify the card; either may be "".
	Name, MAC string
	DHCP      bool
	// Addresses have prefix lengths.
	Addresses   []string
	Routes      []Route
	Nameservers []string
	MTU         int
}

// Route is a route to an address range, or to "default".
type Route struct{ To, Via string }

// networkFile is a file in either version of cloud-init's format; the version decides which half is filled.
type networkFile struct {
	Network *networkFile `json:"network"`
	Config  []struct {
		Type       string `json:"type"`
		Name       string `json:"name"`
		MACAddress string `json:"mac_address"`
		MTU        int    `json:"mtu"`
		Subnets    []struct {
			Type        string   `json:"type"`
			Address     string   `json:"address"`
			Netmask     string   `json:"netmask"`
			Gateway     string   `json:"gateway"`
			Nameservers []string `json:"dns_nameservers"`
		} `json:"subnets"`
	} `json:"config"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

// ethernet is a card in version 2.
type ethernet struct {
	Match struct {
		Name       string `json:"name"`
		MACAddress string `json:"macaddress"`
	} `json:"match"`
	DHCP4       bool     `json:"dhcp4"`
	Addresses   []string `json:"addresses"`
	Gateway4    string   `json:"gateway4"`
	MTU         int      `json:"mtu"`
	Nameservers struct {
		Addresses []string `json:"addresses"`
	} `json:"nameservers"`
	Routes []struct {
		To  string `json:"to"`
		Via string `json:"via"`
	} `json:"routes"`
}

// ParseNetworkData reads network data of version 1 or 2.
func ParseNetworkData(data []byte) ([]NIC, error) {
	var file networkFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("reading the network data: %w", err)
	}
	if file.Network != nil {
		file = *file.Network
	}
	return append(file.version1(), file.version2()...), nil
}

func (f networkFile) version1() []NIC {
	var configs []NIC
	for _, card := range f.Config {
		if card.Type != "physical" {
			continue
		}
		config := NIC{Name: card.Name, MAC: strings.ToLower(card.MACAddress), MTU: card.MTU}
		for _, subnet := range card.Subnets {
			config.Nameservers = append(config.Nameservers, subnet.Nameservers...)
			if strings.HasPrefix(subnet.Type, "dhcp") {
				config.DHCP = true
				continue
			}
			config.Addresses = append(config.Addresses, withPrefix(subnet.Address, subnet.Netmask))
			if subnet.Gateway != "" {
				config.Routes = append(config.Routes, Route{To: "default", Via: subnet.Gateway})
			}
		}
		configs = append(configs, config)
	}
	return configs
}

// withPrefix joins an address and a netmask, unless the address has its prefix.
func withPrefix(address, netmask string) string {
	if mask := net.ParseIP(netmask).To4(); mask != nil && !strings.Contains(address, "/") {
		ones, _ := net.IPMask(mask).Size()
		return fmt.Sprintf("%s/%d", address, ones)
	}
	return address
}

func (f networkFile) version2() []NIC {
	var configs []NIC
	for _, key := range slices.Sorted(maps.Keys(f.Ethernets)) {
		card := f.Ethernets[key]
		config := NIC{
			Name:        key,
			MAC:         strings.ToLower(card.Match.MACAddress),
			DHCP:        card.DHCP4,
			Addresses:   card.Addresses,
			Nameservers: card.Nameservers.Addresses,
			MTU:         card.MTU,
		}
		if card.Match.Name != "" {
			config.Name = card.Match.Name
		}
		if card.Gateway4 != "" {
			config.Routes = append(config.Routes, Route{To: "default", Via: card.Gateway4})
		}
		for _, way := range card.Routes {
			config.Routes = append(config.Routes, Route{To: way.To, Via: way.Via})
		}
		configs = append(configs, config)
	}
	return configs
}

// Choose returns a card's configuration, by its MAC address before its name. A card without one uses DHCP.
func Choose(configs []NIC, name, mac string) NIC {
	for _, config := range configs {
		if config.MAC != "" && config.MAC == mac {
			return config
		}
	}
	for _, config := range configs {
		if config.MAC == "" && config.Name == name {
			return config
		}
	}
	return NIC{DHCP: true}
}
