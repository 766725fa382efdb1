package migrationproxy

import (
	"os"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

func TestTheEndOfAStreamIsKnownByItsLastBytes(t *testing.T) {
	for sent, want := range map[string]bool{
		"":                           false,
		"\x7e\x00\x00\x00\x02":       false,
		"\x7e\x00\x00\x00\x02\x00":   true,
		"\x7e\x00\x00\x00\x02\x01":   false,
		"\x7d\x00\x00\x00\x02\x00":   false,
		"ab\x7e\x00\x00\x00\x02\x00": true,
		"\x7e\x00\x00\x00\x02\x00a":  false,
	} {
		for size := 1; size <= max(1, len(sent)); size++ {
			var l tail
			for rest := sent; rest != ""; rest = rest[min(size, len(rest)):] {
				_, _ = l.Write([]byte(rest[:min(size, len(rest))]))
			}
			if end, count := l.isEnd(); end != want || count != int64(len(sent)) {
				t.Errorf("%q in pieces of %d: the end is %v after %d bytes", sent, size, end, count)
			}
		}
	}
}

// A shielded QEMU must not notice the target's end until it is unshielded, and must then.
func TestAShieldedStreamStaysOpenUntilItIsUnshielded(t *testing.T) {
	p := meet(t)
	p.expect(&Facts{}, newEar())
	listener := p.qemu()
	lost := make(chan struct{}, 10)
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours, OnLost: func() { lost <- struct{}{} }}
	p.forward(f)
	source := p.dialSource()
	target := accept(t, listener)
	passes(t, source, target, "state")
	f.Shield()
	if f.Lost() {
		t.Error("a stream that is whole is lost")
	}
	_ = target.Close()
	<-lost
	if !f.Lost() {
		t.Error("a stream whose target has ended is not lost")
	}
	_ = source.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := source.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
		t.Errorf("QEMU reads %d bytes: %v", n, err)
	}
	f.Unshield()
	ends(t, source)
	_ = source.Close()
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); f.Lost(); <-tick {
		if time.Now().After(deadline) {
			t.Fatal("a stream that has ended is kept")
		}
	}
}

// What was discarded does not reach the target.
func TestADiscardedStreamIsLost(t *testing.T) {
	p := meet(t)
	p.expect(&Facts{}, newEar())
	listener := p.qemu()
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	p.forward(f)
	source := p.dialSource()
	passes(t, source, accept(t, listener), "state")
	f.Discard()
	if !f.Lost() {
		t.Error("it counts as whole")
	}
	f.Unshield()
	ends(t, source)
}
