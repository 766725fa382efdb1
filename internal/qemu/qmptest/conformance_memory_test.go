package qmptest

// memoryDevices is an entry of query-memory-devices.
type memoryDevices struct {
	Type string
	Data struct {
		ID        string
		Requested int64 `json:"requested-size"`
		Size      int64
		Most      int64 `json:"max-size"`
		Block     int64 `json:"block-size"`
	}
}

// isGiven checks the requested size. No system runs that could plug the memory.
func (c *conn) isGiven(want int64) {
	c.t.Helper()
	var list []memoryDevices
	c.do("query-memory-devices", nil, &list)
	if len(list) != 1 {
		c.t.Fatalf("the memory devices are %+v", list)
	}
	if d := list[0].Data; list[0].Type != "virtio-mem" || d.ID != MemoryDevice || d.Requested != want || d.Size != 0 || d.Most != memoryRoom || d.Block != memoryBlock {
		c.t.Fatalf("the memory device is %+v, want %d requested", list[0], want)
	}
}

func give(size int64) properties {
	return properties{"path": "/machine/peripheral/" + MemoryDevice, "property": "requested-size", "value": size}
}

// The target starts without the memory, which comes with the guest.
func memoryMoves(p *pair) {
	p.from.do("qom-set", give(3*memoryBlock), nil)
	p.toSwitchover(true)
	p.toEnd()
	p.to.isGiven(3 * memoryBlock)
}

func memoryPlugged(c *conn) {
	c.isGiven(0)
	c.do("qom-set", give(memoryRoom), nil)
	c.isGiven(memoryRoom)
	c.refused("qom-set", give(memoryRoom+memoryBlock), "GenericError", "cannot exceed the memory backend size")
	c.refused("qom-set", give(memoryBlock/2), "GenericError", "has to be multiples of 'block-size'")
	c.isGiven(memoryRoom)
	c.do("system_reset", nil, nil)
	c.await("RESET")
	c.isGiven(memoryRoom)
	c.do("qom-set", give(0), nil)
	c.isGiven(0)
}
