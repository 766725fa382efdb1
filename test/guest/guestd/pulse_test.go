package main

import (
	"errors"
	"strings"
	"testing"
)

func TestALeaseIsRenewedAsLongAsNobodyElseWrites(t *testing.T) {
	name := soakFile(t, 20*soakBlock+512)
	first, err := newLease(name)
	if err != nil {
		t.Fatal(err)
	}
	for number := range uint64(3 * leaseBlocks) {
		if err := first.renew(number + 1); err != nil {
			t.Fatalf("beat %d: %v", number+1, err)
		}
	}
	// Two copies of one guest go on in two places.
	second := &lease{disk: first.disk, from: first.from, held: alignedMemory(len(first.held)), read: alignedMemory(len(first.read))}
	copy(second.held, first.held)
	const next = 3*leaseBlocks + 1
	if err := second.renew(next); err != nil {
		t.Fatalf("the second guest: %v", err)
	}
	if err := first.renew(next); err == nil || !strings.Contains(err.Error(), "holds beat 25") {
		t.Errorf("the first guest, after the second has written: %v", err)
	}
}

func TestALeaseThatIsTakenIsLost(t *testing.T) {
	name := soakFile(t, leaseBlocks*soakBlock)
	first, err := newLease(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newLease(name); err != nil {
		t.Fatal(err)
	}
	if first.renew(1) == nil {
		t.Error("the first guest does not see that the next one has started")
	}
}

func TestALeaseNeedsRoom(t *testing.T) {
	if _, err := newLease(soakFile(t, leaseBlocks*soakBlock-1)); err == nil {
		t.Error("a disk without room for a lease was accepted")
	}
}

func TestAPulseSaysWhatIsWrong(t *testing.T) {
	p := &pulse{name: "a", boot: "b", beats: 7}
	if got := p.says("3"); got != "3 a b 7" {
		t.Errorf("a guest that is well says %q", got)
	}
	p.trouble = errors.Join(errors.New("one thing"), errors.New("another"))
	if got := p.says("4"); got != "4 a b 7 one thing; another" {
		t.Errorf("a guest that is not says %q", got)
	}
}
