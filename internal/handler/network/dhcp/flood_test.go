package dhcp

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

type flood struct {
	request []byte
	reads   atomic.Int64
	answers atomic.Int64
	closed  chan struct{}
	once    sync.Once
}

func (f *flood) Read(frame []byte) (int, error) {
	select {
	case <-f.closed:
		return 0, fs.ErrClosed
	default:
	}
	f.reads.Add(1)
	return copy(frame, f.request), nil
}

func (f *flood) Write(frame []byte) (int, error) {
	f.answers.Add(1)
	return len(frame), nil
}

func (f *flood) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// patience bounds one wait on a busy machine.
const patience = 4 * time.Minute

func TestAGuestThatAsksWithoutAPauseIsAnsweredAtTheServersPace(t *testing.T) {
	discovery := message(t, dhcpv4.MessageTypeDiscover)
	from := endpoint{mac: guestMAC, port: clientPort4, addr: testLease().Address.Addr()}
	to := endpoint{mac: serverMAC, port: serverPort4, addr: testLease().ServerID}
	link := &flood{request: udpFrame(from, to, discovery.ToBytes()), closed: make(chan struct{})}
	begun := time.Now()
	s := Serve(link, testLease(), logr.Discard())
	for deadline, tick := begun.Add(patience), time.Tick(time.Millisecond); link.answers.Load() <= maxBurst; <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("the guest was answered %d times in %v", link.answers.Load(), patience)
		}
	}
	took := time.Since(begun)
	s.Close()
	reads := link.reads.Load()
	if most := maxBurst + int64(maxRequests*time.Since(begun).Seconds()) + 2; reads > most {
		t.Errorf("%d requests were read in %v, want at most %d", reads, took, most)
	}
}
