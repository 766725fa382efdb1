package qmptest

import (
	"strings"
	"time"
)

func (p *pair) nbdSocket() string {
	uri, _ := p.uri["uri"].(string)
	return strings.TrimPrefix(uri, "unix:") + ".nbd"
}

// jobIs waits until the job copy-a has a status, and returns its error.
func (c *conn) jobIs(want string) string {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var list []struct {
			ID, Status, Error string
			Done              *int64 `json:"current-progress"`
			Total             *int64 `json:"total-progress"`
		}
		c.do("query-jobs", nil, &list)
		if len(list) == 1 && list[0].ID == "copy-a" && list[0].Status == want && list[0].Done != nil && list[0].Total != nil {
			return list[0].Error
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the jobs are %+v, want copy-a that is %s", list, want)
		}
	}
}

func (c *conn) exports() []string {
	c.t.Helper()
	var list []struct{ ID string }
	c.do("query-block-exports", nil, &list)
	var ids []string
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

func (p *pair) copies() {
	p.to.t.Helper()
	start := properties{"addr": properties{"type": "unix", "data": properties{"path": p.nbdSocket()}}}
	export := properties{"type": "nbd", "id": "export-a", "name": "export-a", "node-name": RootNode, "writable": true}
	p.to.refused("block-export-add", export, "GenericError", "not running")
	p.to.do("nbd-server-start", start, nil)
	p.to.refused("nbd-server-start", start, "GenericError", "already running")
	p.to.do("block-export-add", export, nil)
	p.to.refused("block-export-add", export, "GenericError", "already in use")
	p.to.refused("block-export-add", properties{"type": "nbd", "id": "export-b", "name": "b", "node-name": "none", "writable": true}, "GenericError", "node-name='none'")
	client := func(node, export string) properties {
		return properties{"driver": "nbd", "node-name": node, "export": export, "server": properties{"type": "unix", "path": p.nbdSocket()}}
	}
	p.from.refused("blockdev-add", client("c-b", "export-b"), "GenericError", "not available")
	p.from.do("blockdev-add", client("c-a", "export-a"), nil)
	if sizes := p.from.sizes(); sizes["c-a"] != sizes[RootNode] {
		p.from.t.Errorf("the sizes are %v", sizes)
	}
	job := properties{"job-id": "copy-a", "device": RootNode, "target": "c-a", "sync": "top", "copy-mode": "background",
		"on-source-error": "report", "on-target-error": "report", "auto-dismiss": false}
	// A part of a larger target can be used. It must be deleted before the target.
	p.from.do("blockdev-add", properties{"driver": "raw", "node-name": "s-a", "file": "c-a", "offset": 0, "size": 512}, nil)
	if sizes := p.from.sizes(); sizes["s-a"] != 512 {
		p.from.t.Errorf("the sizes are %v", sizes)
	}
	p.from.refused("blockdev-del", byName("c-a"), "GenericError", "in use")
	p.from.do("blockdev-del", byName("s-a"), nil)
	p.from.refused("blockdev-mirror", properties{"job-id": "copy-b", "device": "none", "target": "c-a", "sync": "top"}, "GenericError", "node-name='none'")
	p.from.do("blockdev-mirror", job, nil)
	p.from.await("JOB_STATUS_CHANGE")
	p.from.await("BLOCK_JOB_READY")
	p.from.jobIs("ready")
	p.from.refused("blockdev-del", byName("c-a"), "GenericError", "in use")
	p.from.refused("job-dismiss", properties{"id": "copy-a"}, "GenericError", "cannot accept command verb 'dismiss'")
}

func finish(force bool) properties { return properties{"device": "copy-a", "force": force} }

func mirrored(p *pair) {
	p.copies()
	p.toSwitchover(true)
	p.from.do("block-job-cancel", finish(false), nil)
	p.from.await("BLOCK_JOB_COMPLETED")
	if failure := p.from.jobIs("concluded"); failure != "" {
		p.from.t.Errorf("the copy has failed: %s", failure)
	}
	p.from.refused("block-job-cancel", finish(false), "GenericError", "cannot accept command verb 'cancel'")
	p.from.do("blockdev-del", byName("c-a"), nil)
	p.toEnd()
	p.to.reaches("paused")
	if got := p.to.exports(); len(got) != 1 || got[0] != "export-a" {
		p.to.t.Errorf("the exports are %v", got)
	}
	p.to.do("nbd-server-stop", nil, nil)
	p.to.await("BLOCK_EXPORT_DELETED")
	p.to.refused("nbd-server-stop", nil, "GenericError", "not running")
	if got := p.to.exports(); len(got) != 0 {
		p.to.t.Errorf("the exports are %v", got)
	}
	p.to.do("cont", nil, nil)
	p.to.is("running")
	// The job keeps its result until it is dismissed.
	p.from.do("job-dismiss", properties{"id": "copy-a"}, nil)
	p.from.refused("job-dismiss", properties{"id": "copy-a"}, "GenericError", "not found")
	p.from.refused("block-job-cancel", finish(true), "DeviceNotActive", "not found")
}

func mirrorEnded(p *pair) {
	p.copies()
	p.from.do("block-job-cancel", finish(true), nil)
	p.from.await("BLOCK_JOB_CANCELLED") //nolint:misspell // QEMU's word
	if failure := p.from.jobIs("concluded"); failure != "Operation canceled" {
		p.from.t.Errorf("the job says %q", failure)
	}
	p.from.do("blockdev-del", byName("c-a"), nil)
	p.from.do("job-dismiss", properties{"id": "copy-a"}, nil)
	p.from.do("cont", nil, nil)
	p.from.is("running")
}

// An idle job notices the end of its target only when it is completed.
func mirrorLost(p *pair) {
	p.copies()
	_ = p.to.Execute(p.to.t.Context(), "quit", nil, nil)
	p.to.ends()
	p.from.jobIs("ready")
	p.from.do("block-job-cancel", finish(false), nil)
	if failure := p.from.jobIs("concluded"); failure == "" {
		p.from.t.Error("a copy whose target has ended is finished without an error")
	}
	p.from.do("blockdev-del", byName("c-a"), nil)
	p.from.do("cont", nil, nil)
	p.from.is("running")
}
