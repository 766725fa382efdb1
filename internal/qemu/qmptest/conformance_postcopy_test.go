package qmptest

import "time"

// toPostCopy moves a guest to the target before its memory, which follows slowly.
func (p *pair) toPostCopy() {
	p.to.t.Helper()
	if err := p.to.Execute(p.to.t.Context(), "migrate-set-capabilities", switches("postcopy-ram"), nil); err != nil {
		p.to.t.Skipf("no post-copy here: %v", err)
	}
	p.to.do("migrate-set-capabilities", switches("events", "return-path", "late-block-activate"), nil)
	p.to.do("migrate-incoming", p.uri, nil)
	p.from.do("cont", nil, nil)
	p.from.do("migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover", "postcopy-ram"), nil)
	p.from.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 18, "downtime-limit": 1, "max-postcopy-bandwidth": 1 << 17}, nil)
	p.from.refused("migrate-start-postcopy", nil, "GenericError", "after migration has been started")
	p.from.do("migrate", p.uri, nil)
	p.from.arrived("active")
	p.from.do("migrate-start-postcopy", nil, nil)
	p.from.migrated("pre-switchover")
	p.from.is("finish-migrate")
	p.to.is("inmigrate")
	p.from.do("migrate-continue", proceed, nil)
	p.from.arrived("postcopy-active")
	p.to.arrived("postcopy-active")
	p.to.reaches("paused")
	p.to.migrated("postcopy-active")
}

// firstPage waits until the source has sent memory after its guest.
func (p *pair) firstPage() {
	p.from.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var info struct {
			RAM struct {
				Bytes int64 `json:"postcopy-bytes"`
			}
		}
		p.from.do("query-migrate", nil, &info)
		if info.RAM.Bytes > 0 {
			return
		}
		if time.Now().After(deadline) {
			p.from.t.Fatal("no page is sent after the guest")
		}
	}
}

func (p *pair) fast() {
	p.from.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 40, "max-postcopy-bandwidth": 1 << 40}, nil)
}

func postCopied(p *pair) {
	p.toPostCopy()
	p.firstPage()
	p.to.do("cont", nil, nil)
	p.to.is("running")
	p.from.is("finish-migrate")
	p.fast()
	p.from.migrated("completed")
	p.from.reaches("postmigrate")
	p.to.migrated("completed")
	p.to.is("running")
	p.from.silent("RESUME")
}

// A canceled post-copy leaves the guest stopped; after any other migration QEMU resumes it.
func postCopyGivenUp(p *pair) {
	p.to.do("migrate-set-capabilities", switches("events", "return-path", "late-block-activate"), nil)
	if err := p.to.Execute(p.to.t.Context(), "migrate-set-capabilities", switches("postcopy-ram"), nil); err != nil {
		p.to.t.Skipf("no post-copy here: %v", err)
	}
	p.to.do("migrate-incoming", p.uri, nil)
	p.from.do("cont", nil, nil)
	p.from.do("migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover", "postcopy-ram"), nil)
	p.from.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 18, "downtime-limit": 1}, nil)
	p.from.do("migrate", p.uri, nil)
	p.from.arrived("active")
	p.from.do("migrate-start-postcopy", nil, nil)
	p.from.migrated("pre-switchover")
	p.from.do("migrate_cancel", nil, nil)
	p.from.migrated(migrationCanceled)
	p.from.reaches("postmigrate")
	p.to.ends()
	p.from.do("cont", nil, nil)
	p.from.is("running")
}

// postCopyCanceled shows that a post-copy can be canceled at any time while its stream is whole. Its guest, which has not
// run at the target, is then left stopped, and runs when it is told to.
func postCopyCanceled(p *pair) {
	p.toPostCopy()
	p.firstPage()
	p.from.do("migrate_cancel", nil, nil)
	p.from.migrated(migrationCanceled)
	p.from.reaches("postmigrate")
	p.to.migrated("postcopy-paused")
	p.to.is("paused")
	p.from.do("cont", nil, nil)
	p.from.is("running")
}

// postCopyLost shows that a post-copy whose stream has broken is never canceled, and that its guest can't run then.
func postCopyLost(p *pair) {
	p.toPostCopy()
	p.firstPage()
	_ = p.to.Execute(p.to.t.Context(), "quit", nil, nil)
	p.to.ends()
	p.from.migrated("postcopy-paused")
	p.from.do("migrate_cancel", nil, nil)
	p.from.arrived(migrationCanceling)
	p.from.refused("cont", nil, "GenericError", "not finalized yet")
	p.from.silent("MIGRATION", "RESUME")
	if got := p.from.status(); got != migrationCanceling {
		p.from.t.Errorf("the migration is %s", got)
	}
	p.from.is("finish-migrate")
}
