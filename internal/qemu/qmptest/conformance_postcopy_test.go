package qmptest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// relay is between the QEMUs, as a virt-handler is.
type relay struct {
	source, target net.Conn
	mu             sync.Mutex
	// tail has the last bytes that the source has sent.
	tail []byte
}

// relayed passes a migration on, but not its last answer.
func (p *pair) relayed() (uri properties, connected <-chan *relay) {
	p.to.t.Helper()
	t := p.to.t
	path := filepath.Join(filepath.Dir(p.uri["uri"].(string)[len("unix:"):]), fmt.Sprintf("r%d.sock", p.relays))
	p.relays++
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	relays := make(chan *relay, 1)
	go func() {
		source, err := listener.Accept()
		if err != nil {
			return
		}
		target, err := net.Dial("unix", p.uri["uri"].(string)[len("unix:"):])
		if err != nil {
			_ = source.Close()
			return
		}
		r := &relay{source: source, target: target}
		relays <- r
		go r.forward()
		r.backward()
	}()
	return properties{"uri": "unix:" + path}, relays
}

// forward goes on when the target is gone.
func (r *relay) forward() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.source.Read(buffer)
		r.mu.Lock()
		r.tail = append(r.tail, buffer[:n]...)
		r.tail = r.tail[max(0, len(r.tail)-len(endOfStream)):]
		r.mu.Unlock()
		_, _ = r.target.Write(buffer[:n])
		if err != nil {
			_ = r.target.Close()
			return
		}
	}
}

func (r *relay) backward() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.target.Read(buffer)
		if err != nil || bytes.HasSuffix(buffer[:n], shut(0)) {
			_, _ = io.Copy(io.Discard, r.target)
			return
		}
		_, _ = r.source.Write(buffer[:n])
	}
}

func (r *relay) allSent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tail) == len(endOfStream) && r.tail[0] == endOfStream[0] && r.tail[len(r.tail)-1] == endOfStream[len(endOfStream)-1]
}

// toPostCopyByRelay is toPostCopy of a guest that is stopped first.
func (p *pair) toPostCopyByRelay() *relay {
	p.to.t.Helper()
	uri, connected := p.relayed()
	p.preparePostCopy()
	p.from.do("migrate", uri, nil)
	p.from.arrived("active")
	p.from.do("stop", nil, nil)
	p.moveFirst()
	p.firstPage()
	return <-connected
}

// awaitEnd waits until the source has sent all memory.
func (p *pair) awaitEnd(r *relay) {
	p.from.t.Helper()
	p.fast()
	for deadline := time.Now().Add(patience); p.remaining() > 0 || !r.allSent(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.from.t.Fatalf("the source sends no end: %d bytes remain", p.remaining())
		}
	}
}

func (p *pair) remaining() int64 {
	p.from.t.Helper()
	var info struct{ RAM struct{ Remaining int64 } }
	p.from.do("query-migrate", nil, &info)
	return info.RAM.Remaining
}

// toPostCopy moves a guest to the target before its memory, which follows slowly.
func (p *pair) toPostCopy() {
	p.to.t.Helper()
	p.preparePostCopy()
	p.from.refused("migrate-start-postcopy", nil, "GenericError", "after migration has been started")
	p.from.do("migrate", p.uri, nil)
	p.from.arrived("active")
	p.moveFirst()
}

func (p *pair) preparePostCopy() {
	p.to.t.Helper()
	if err := p.to.Execute(p.to.t.Context(), "migrate-set-capabilities", switches("postcopy-ram"), nil); err != nil {
		p.to.t.Skipf("no post-copy here: %v", err)
	}
	p.to.do("migrate-set-capabilities", switches("events", "return-path", "late-block-activate"), nil)
	p.to.do("migrate-incoming", p.uri, nil)
	p.from.do("cont", nil, nil)
	p.from.do("migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover", "postcopy-ram"), nil)
	p.from.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 18, "downtime-limit": 1, "max-postcopy-bandwidth": 1 << 17}, nil)
}

func (p *pair) moveFirst() {
	p.to.t.Helper()
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

// Like toPostCopyByRelay, but the migration is canceled before the guest has moved. QEMU 10 resumes a guest that was not
// stopped.
func postCopyGivenUp(p *pair) {
	p.preparePostCopy()
	p.from.do("migrate", p.uri, nil)
	p.from.arrived("active")
	p.from.do("stop", nil, nil)
	p.from.do("migrate-start-postcopy", nil, nil)
	p.from.migrated("pre-switchover")
	p.from.do("migrate_cancel", nil, nil)
	p.from.migrated(migrationCanceled)
	p.from.reaches(givenBack...)
	p.to.ends()
	p.from.silent("RESUME")
	p.from.do("cont", nil, nil)
	p.from.is("running")
}

// postCopyRejected shows that a guest that has not run at the target comes back, stopped, if the source is told, after it
// has sent all memory, that it could not be loaded. In post-copy, QEMU 10 refuses to cancel.
func postCopyRejected(p *pair) {
	r := p.toPostCopyByRelay()
	_ = r.target.Close()
	p.awaitEnd(r)
	if _, err := r.source.Write(shut(1)); err != nil {
		p.from.t.Fatal(err)
	}
	p.from.migrated(migrationFailed)
	p.from.reaches(givenBack...)
	p.from.silent("RESUME")
	p.to.migrated("postcopy-paused")
	p.from.do("cont", nil, nil)
	p.from.is("running")
	p.from.do("migrate-set-capabilities", switches("events"), nil) // The migration is over.
}

// postCopyEndsBadly shows that a guest that was stopped never continues by itself, whatever becomes of its post-copy: the
// target may run it. QEMU 10 resumes one that was not stopped.
func postCopyEndsBadly(p *pair) {
	r := p.toPostCopyByRelay()
	p.to.do("cont", nil, nil)
	p.fast()
	p.to.migrated("completed")
	p.awaitEnd(r)
	_ = r.source.Close()
	p.to.is("running")
	time.Sleep(100 * time.Millisecond)
	p.from.silent("RESUME")
}

// postCopyLost shows that a guest whose post-copy has broken can't run at the source.
func postCopyLost(p *pair) {
	p.toPostCopy()
	p.firstPage()
	_ = p.to.Execute(p.to.t.Context(), "quit", nil, nil)
	p.to.ends()
	p.from.migrated("postcopy-paused")
	p.from.refused("cont", nil, "GenericError", "not finalized yet")
	p.from.silent("RESUME")
	p.from.is("finish-migrate")
}
