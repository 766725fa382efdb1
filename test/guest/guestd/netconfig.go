package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// nicConfig is one card's in cloud-init's network data.
type nicConfig struct {
	name, mac   string
	dhcp        bool
	addresses   []string // with prefix lengths
	routes      []route
	nameservers []string
	mtu         int
}

type route struct{ to, via string }

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

func parseNetworkData(data []byte) ([]nicConfig, error) {
	var file networkFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("reading the network data: %w", err)
	}
	if file.Network != nil {
		file = *file.Network
	}
	return append(file.version1(), file.version2()...), nil
}

func (f networkFile) version1() []nicConfig {
	var configs []nicConfig
	for _, card := range f.Config {
		if card.Type != "physical" {
			continue
		}
		config := nicConfig{name: card.Name, mac: strings.ToLower(card.MACAddress), mtu: card.MTU}
		for _, subnet := range card.Subnets {
			config.nameservers = append(config.nameservers, subnet.Nameservers...)
			if strings.HasPrefix(subnet.Type, "dhcp") {
				config.dhcp = true
				continue
			}
			config.addresses = append(config.addresses, withPrefix(subnet.Address, subnet.Netmask))
			if subnet.Gateway != "" {
				config.routes = append(config.routes, route{to: "default", via: subnet.Gateway})
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

func (f networkFile) version2() []nicConfig {
	var configs []nicConfig
	for _, key := range slices.Sorted(maps.Keys(f.Ethernets)) {
		card := f.Ethernets[key]
		config := nicConfig{
			name:        key,
			mac:         strings.ToLower(card.Match.MACAddress),
			dhcp:        card.DHCP4,
			addresses:   card.Addresses,
			nameservers: card.Nameservers.Addresses,
			mtu:         card.MTU,
		}
		if card.Match.Name != "" {
			config.name = card.Match.Name
		}
		if card.Gateway4 != "" {
			config.routes = append(config.routes, route{to: "default", via: card.Gateway4})
		}
		for _, way := range card.Routes {
			config.routes = append(config.routes, route{to: way.To, via: way.Via})
		}
		configs = append(configs, config)
	}
	return configs
}

// chooseConfig finds a card's configuration, by its MAC address before its name. A card without one uses DHCP.
func chooseConfig(configs []nicConfig, name, mac string) nicConfig {
	for _, config := range configs {
		if config.mac != "" && config.mac == mac {
			return config
		}
	}
	for _, config := range configs {
		if config.mac == "" && config.name == name {
			return config
		}
	}
	return nicConfig{dhcp: true}
}
