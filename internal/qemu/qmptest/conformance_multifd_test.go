package qmptest

func (p *pair) several(c *conn) {
	c.t.Helper()
	c.do("migrate-set-parameters", properties{"multifd-channels": 3}, nil)
	c.do("migrate-set-capabilities", switches("multifd"), nil)
}

func multifd(p *pair) {
	p.several(p.to)
	p.several(p.from)
	for _, c := range []*conn{p.from, p.to} {
		var list []struct {
			Capability string
			State      bool
		}
		var parameters struct {
			Channels int `json:"multifd-channels"`
		}
		c.do("query-migrate-capabilities", nil, &list)
		c.do("query-migrate-parameters", nil, &parameters)
		on := map[string]bool{}
		for _, one := range list {
			on[one.Capability] = one.State
		}
		if !on["multifd"] || on["late-block-activate"] || parameters.Channels != 3 {
			c.t.Errorf("QEMU says %v and %+v", on, parameters)
		}
	}
	p.toSwitchover(true)
	p.toEnd()
	p.to.reaches("paused")
	p.to.do("cont", nil, nil)
	p.to.is("running")
}

// multifdRefused migrates to a target without multifd.
func multifdRefused(p *pair) {
	p.several(p.from)
	p.to.do("migrate-set-capabilities", switches("events", "return-path"), nil)
	p.to.do("migrate-incoming", p.uri, nil)
	p.from.do("cont", nil, nil)
	p.from.do("migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover"), nil)
	p.from.do("migrate", p.uri, nil)
	p.from.migrated("failed")
	p.from.reaches("running")
}
