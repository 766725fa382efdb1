package qmptest

import "slices"

// No system runs that could release the device.
func plugsNIC(c *conn) {
	backend := properties{"type": "hubport", "id": "host-a", "hubid": 1}
	nic := properties{"driver": "virtio-net-pci", "id": "net-a", "netdev": "host-a", "bus": Port, "romfile": ""}
	c.refused("device_add", nic, "GenericError", "netdev' can't find value 'host-a'")
	c.refused("device_add", properties{"driver": "vfio-pci", "id": "net-c", "host": "ffff:ff:1f.7", "bus": Port, "romfile": ""}, "GenericError",
		"vfio /sys/bus/pci/devices/ffff:ff:1f.7: no such host device")
	c.do("netdev_add", backend, nil)
	c.refused("netdev_add", backend, "GenericError", "Duplicate ID 'host-a'")
	c.do("netdev_del", properties{"id": "host-a"}, nil)
	c.refused("netdev_del", properties{"id": "host-a"}, "DeviceNotFound", "not found")
	c.do("netdev_add", backend, nil)
	c.do("device_add", nic, nil)
	c.refused("device_add", nic, "GenericError", "Duplicate device ID 'net-a'")
	if got := c.names(peripherals); !slices.Contains(got, "net-a") {
		c.t.Fatalf("the devices are %v", got)
	}
	c.do("set_link", properties{"name": "host-a", "up": false}, nil)
	c.do("device_del", properties{"id": "net-a"}, nil)
	if got := c.names(peripherals); !slices.Contains(got, "net-a") {
		c.t.Errorf("a device that nobody has released is gone: %v", got)
	}
	c.refused("device_del", properties{"id": "net-b"}, "DeviceNotFound", "not found")
}
