package qmptest

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

const megabyte = 1 << 20

func (c *conn) sizes() map[string]int64 {
	c.t.Helper()
	var list []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		}
	}
	c.do("query-named-block-nodes", properties{"flat": true}, &list)
	sizes := map[string]int64{}
	for _, n := range list {
		sizes[n.Name] = n.Image.Size
	}
	return sizes
}

// disk passes a file to QEMU and creates the nodes f-a and n-a on it.
func (c *conn) disk() {
	c.t.Helper()
	path := sets + strconv.FormatInt(c.passes("a", megabyte), 10)
	c.do("blockdev-add", properties{"driver": "file", "node-name": "f-a", "filename": path}, nil)
	c.do("blockdev-add", properties{"driver": "raw", "node-name": "n-a", "file": "f-a"}, nil)
}

func byName(name string) properties { return properties{"node-name": name} }

func blockNodes(c *conn) {
	c.disk()
	if got := c.sizes(); got["f-a"] != megabyte || got["n-a"] != megabyte || got[RootNode] != rootSize {
		c.t.Errorf("the nodes are %v", got)
	}
	c.refused("blockdev-add", properties{"driver": "raw", "node-name": "n-a", "file": "f-a"}, "GenericError", "Duplicate")
	c.refused("blockdev-add", properties{"driver": "raw", "node-name": "n-b", "file": "none"}, "GenericError", "node-name='none'")
	c.refused("blockdev-add", properties{"driver": "file", "node-name": "f-b", "filename": "/none"}, "GenericError", "Could not open")
	c.refused("blockdev-del", byName("f-a"), "GenericError", "in use")
	c.refused("blockdev-del", byName(RootNode), "GenericError", "in use")
	c.refused("blockdev-del", byName("none"), "GenericError", "Failed to find")
	c.do("block_resize", properties{"node-name": "n-a", "size": 2 * megabyte}, nil)
	if got := c.sizes()["n-a"]; got != 2*megabyte {
		c.t.Errorf("the node that has grown has %d bytes", got)
	}
	c.refused("block_resize", properties{"node-name": "none", "size": megabyte}, "GenericError", "node-name='none'")
	c.do("blockdev-del", byName("n-a"), nil)
	c.do("blockdev-del", byName("f-a"), nil)
	if got := c.sizes(); len(got) != 1 {
		c.t.Errorf("the nodes are %v", got)
	}
}

// plugs plugs a device with the node n-a.
func (c *conn) plugs(device properties) {
	c.t.Helper()
	c.disk()
	device["id"], device["drive"] = "disk-a", "n-a"
	c.do("device_add", device, nil)
	if got := c.names(peripherals); !slices.Contains(got, "disk-a") {
		c.t.Fatalf("the devices are %v", got)
	}
}

func deleted(device string, data json.RawMessage) bool {
	var of struct{ Device string }
	return json.Unmarshal(data, &of) == nil && of.Device == device
}

func unplugSCSI(c *conn) {
	scsi := properties{"driver": "scsi-hd", "bus": SCSIBus, "lun": 3}
	c.plugs(scsi)
	c.refused("device_add", scsi, "GenericError", "Duplicate device ID 'disk-a'")
	c.refused("device_add", properties{"driver": "scsi-hd", "bus": SCSIBus, "lun": 4, "id": "disk-b", "drive": "none"}, "GenericError", "can't find value 'none'")
	c.refused("device_add", properties{"driver": "scsi-hd", "bus": SCSIBus, "lun": 4, "id": "disk-b", "drive": "n-a"}, "GenericError", "Permission conflict on node 'n-a'")
	c.refused("blockdev-del", byName("n-a"), "GenericError", "in use")
	c.do("cont", nil, nil)
	c.do("device_del", properties{"id": "disk-a"}, nil)
	for !deleted("disk-a", c.await("DEVICE_DELETED").Data) {
	}
	if got := c.names(peripherals); slices.Contains(got, "disk-a") {
		c.t.Errorf("the devices are %v", got)
	}
	c.refused("device_del", properties{"id": "disk-a"}, "DeviceNotFound", "not found")
	c.do("blockdev-del", byName("n-a"), nil)
}

// No system runs that could release the device.
func unplugPCI(c *conn) {
	c.plugs(properties{"driver": "virtio-blk-pci", "bus": Port})
	c.do("device_del", properties{"id": "disk-a"}, nil)
	if got := c.names(peripherals); !slices.Contains(got, "disk-a") {
		c.t.Errorf("a device that nobody has released is gone: %v", got)
	}
	c.refused("blockdev-del", byName("n-a"), "GenericError", "in use")
	c.silent("DEVICE_DELETED")
}

func (c *conn) drives() (open bool, medium string) {
	c.t.Helper()
	var list []struct {
		QDev     string
		Open     bool `json:"tray_open"`
		Inserted struct {
			Node string `json:"node-name"`
		}
	}
	c.do("query-block", nil, &list)
	for _, d := range list {
		if d.QDev == Drive {
			return d.Open, d.Inserted.Node
		}
	}
	c.t.Fatalf("no drive among %v", list)
	return false, ""
}

func (c *conn) tray(open bool, medium string) {
	c.t.Helper()
	if isOpen, has := c.drives(); isOpen != open || has != medium {
		c.t.Fatalf("the tray is open: %v, with %q; want %v with %q", isOpen, has, open, medium)
	}
}

func media(c *conn) {
	id := properties{"id": Drive}
	insert := properties{"id": Drive, "node-name": "n-a"}
	c.disk()
	c.tray(false, "")
	c.refused("blockdev-insert-medium", insert, "GenericError", "not open")
	c.do("blockdev-open-tray", properties{"id": Drive, "force": false}, nil)
	c.await("DEVICE_TRAY_MOVED")
	c.do("blockdev-open-tray", properties{"id": Drive, "force": false}, nil)
	c.refused("blockdev-insert-medium", properties{"id": Drive, "node-name": "none"}, "GenericError", "'none' not found")
	c.do("blockdev-insert-medium", insert, nil)
	c.refused("blockdev-insert-medium", insert, "GenericError", "already in use")
	c.refused("blockdev-insert-medium", properties{"id": Drive, "node-name": "f-a"}, "GenericError", "")
	c.do("blockdev-close-tray", id, nil)
	c.await("DEVICE_TRAY_MOVED")
	c.do("blockdev-close-tray", id, nil)
	c.tray(false, "n-a")
	c.refused("blockdev-remove-medium", id, "GenericError", "not open")
	c.refused("blockdev-del", byName("n-a"), "GenericError", "in use")
	c.do("blockdev-open-tray", properties{"id": Drive, "force": true}, nil)
	c.do("blockdev-remove-medium", id, nil)
	c.do("blockdev-remove-medium", id, nil)
	c.tray(true, "")
	c.do("blockdev-del", byName("n-a"), nil)
	c.refused("blockdev-open-tray", properties{"id": "none"}, "DeviceNotFound", "not found")
}

func blockLists(c *conn) {
	for command, want := range map[string][]string{
		"query-block":      {Drive, "/machine/peripheral/" + RootDisk + "/virtio-backend"},
		"query-blockstats": {Drive, "/machine/peripheral/" + RootDisk + "/virtio-backend"},
	} {
		var list []struct {
			QDev   string
			Status string `json:"io-status"`
			Stats  *struct {
				Reads *int64 `json:"rd_operations"`
			}
		}
		c.do(command, nil, &list)
		var got []string
		for _, d := range list {
			got = append(got, d.QDev)
			if command == "query-block" && d.Status != "ok" || command == "query-blockstats" && (d.Stats == nil || d.Stats.Reads == nil) {
				c.t.Errorf("%s: %+v", command, d)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			c.t.Errorf("%s lists %v, want %v", command, got, want)
		}
	}
}

func replacedNode(c *conn) {
	drive := properties{"path": "/machine/peripheral/" + RootDisk, "property": "drive"}
	c.do("blockdev-add", properties{"driver": "null-co", "node-name": "detached", "size": 0}, nil)
	replace := properties{"path": "/machine/peripheral/" + RootDisk, "property": "drive", "value": "none"}
	c.refused("qom-set", replace, "GenericError", "none")
	replace["value"] = "detached"
	c.do("qom-set", replace, nil)
	var has string
	if c.do("qom-get", drive, &has); has != "detached" {
		c.t.Errorf("behind the device is %q", has)
	}
	c.do("blockdev-del", byName(RootNode), nil)
	drive["path"] = "/machine/peripheral/none"
	c.refused("qom-get", drive, "DeviceNotFound", "not found")
}

func buttons(c *conn) {
	c.do("system_powerdown", nil, nil)
	c.await("POWERDOWN")
	c.do("send-key", properties{"keys": []properties{{"type": "qcode", "data": "ctrl"}}}, nil)
	c.refused("system_wakeup", nil, "GenericError", "not in suspended state")
}

func links(c *conn) {
	for _, up := range []bool{false, true, true} {
		c.do("set_link", properties{"name": Netdev, "up": up}, nil)
	}
	c.refused("set_link", properties{"name": "host-none", "up": true}, "DeviceNotFound", "host-none")
}

func agentPort(c *conn) {
	var list []struct {
		Label string
		Open  bool `json:"frontend-open"`
	}
	c.do("query-chardev", nil, &list)
	for _, d := range list {
		if d.Label == AgentChardev {
			if d.Open {
				c.t.Error("a machine without a system has an agent")
			}
			return
		}
	}
	c.t.Errorf("no agent's port among %v", list)
}

func quits(c *conn) {
	c.do("quit", nil, nil)
	if e := c.await("SHUTDOWN"); !strings.Contains(string(e.Data), "host-qmp-quit") {
		c.t.Errorf("QEMU ends with %s", e.Data)
	}
	<-c.Done()
	if !errors.Is(c.Err(), io.EOF) {
		c.t.Errorf("the connection ended with %v", c.Err())
	}
}
