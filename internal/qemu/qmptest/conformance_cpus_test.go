package qmptest

import "slices"

// pluggable is an entry of query-hotpluggable-cpus.
type pluggable struct {
	Type  string
	Props struct {
		Socket int `json:"socket-id"`
		Core   int `json:"core-id"`
		Thread int `json:"thread-id"`
	}
	Path string `json:"qom-path"`
}

// hasCPUs checks which sockets have a CPU, and returns the path of the last one.
func (c *conn) hasCPUs(want ...int) string {
	c.t.Helper()
	var list []pluggable
	c.do("query-hotpluggable-cpus", nil, &list)
	var has []int
	last := ""
	for _, p := range slices.Backward(list) {
		if p.Type != cpuDriver || p.Props.Core != 0 || p.Props.Thread != 0 {
			c.t.Fatalf("a CPU %+v", p)
		}
		if p.Path != "" {
			has, last = append(has, p.Props.Socket), p.Path
		}
	}
	if len(list) != sockets || !slices.Equal(has, want) {
		c.t.Fatalf("of %d sockets, these have a CPU: %v, want %v", len(list), has, want)
	}
	return last
}

func cpus(c *conn) {
	boot := c.hasCPUs(0)
	second := properties{"driver": cpuDriver, "id": "cpu-1", "socket-id": 1, "core-id": 0, "thread-id": 0}
	c.do("device_add", second, nil)
	path := c.hasCPUs(0, 1)
	if path != "/machine/peripheral/cpu-1" {
		c.t.Errorf("the CPU is at %s", path)
	}
	second["id"] = "cpu-x"
	c.refused("device_add", second, "GenericError", "exists")
	second["socket-id"] = sockets
	c.refused("device_add", second, "GenericError", "must be in range")
	c.refused("device_del", properties{"id": boot}, "GenericError", "unpluggable")
	c.refused("device_del", properties{"id": "/machine/peripheral/cpu-9"}, "DeviceNotFound", "not found")
	// There is no running system to release it.
	c.refused("device_del", properties{"id": path}, "GenericError", "not supported")
	c.hasCPUs(0, 1)
}
