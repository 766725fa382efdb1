package migrationproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/greeting"
)

// One direction ends, and QEMU still answers in the other.
func TestTheDirectionsOfAStreamEndOneByOne(t *testing.T) {
	p := meet(t)
	qemu := p.qemu()
	p.expect(&Facts{}, newEar())
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	stop := p.forward(f)
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	there := p.dialSource()
	here := accept(t, qemu)
	var directions sync.WaitGroup
	directions.Go(func() {
		if _, err := there.Write(sent); err != nil {
			t.Error(err)
		}
		if err := there.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(here)
	directions.Wait()
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Fatalf("%d bytes of %d came: %v", len(got), len(sent), err)
	}
	for _, answer := range []string{"a first answer", "and one more"} {
		passes(t, here, there, answer)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(there); err != nil || len(rest) > 0 {
		t.Errorf("after the last answer came %q, %v", rest, err)
	}
	if f.Sent() != int64(len(sent)) || f.Received() != int64(len("a first answerand one more")) {
		t.Errorf("counted were %d bytes there and %d back", f.Sent(), f.Received())
	}
	stop()
	if err := f.Failure(); err != nil {
		t.Errorf("it failed: %v", err)
	}
	if _, err := os.Lstat(socket(p.sourceDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func passes(t *testing.T, from, to net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(from, what); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, len(what))
	if _, err := io.ReadFull(to, heard); err != nil || string(heard) != what {
		t.Fatalf("heard was %q: %v", heard, err)
	}
}

// A QEMU that closes its connection has written all data; answers that arrive meanwhile must not lose it.
func TestWhatQEMUWroteBeforeItClosedArrives(t *testing.T) {
	p := meet(t)
	qemu := p.qemu()
	p.expect(&Facts{}, newEar())
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours})
	there := p.dialSource()
	here := accept(t, qemu)
	// The way back is full before the way there begins.
	var answers sync.WaitGroup
	enough := make(chan struct{})
	answers.Go(func() {
		for {
			select {
			case <-enough:
				return
			default:
			}
			if _, err := here.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = there.Write(sent)
		_ = there.Close()
	}()
	got, err := io.ReadAll(here)
	close(enough)
	_ = here.Close()
	answers.Wait()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came: %v", len(got), len(sent), err)
	}
}

// The source's QEMU continues by itself as soon as it notices.
func TestTheSourceNoticesAtOnceThatTheTargetsQEMUIsGone(t *testing.T) {
	p := meet(t)
	qemu := p.qemu()
	p.expect(&Facts{}, newEar())
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours})
	there := p.dialSource()
	here := accept(t, qemu)
	if _, err := io.WriteString(there, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(here, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = here.Close()
	began := time.Now()
	for err := error(nil); err == nil; {
		_, err = there.Write(make([]byte, 64<<10))
		if err != nil && os.IsTimeout(err) {
			t.Fatal("the source still writes")
		}
	}
	t.Logf("noticed after %v", time.Since(began))
}

func TestAMigrationHasOnlySoManyStreams(t *testing.T) {
	p := meet(t)
	qemu := p.qemu()
	p.expect(&Facts{}, newEar())
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	p.forward(f)
	var all []net.Conn
	for range migrationwire.MaxStreams {
		there := p.dialSource()
		here := accept(t, qemu)
		if _, err := io.WriteString(there, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(here, make([]byte, 1)); err != nil {
			t.Fatalf("stream %d: %v", len(all)+1, err)
		}
		all = append(all, there, here)
	}
	// The source's own limit.
	ends(t, p.dialSource())
	if err := f.Failure(); err == nil || !strings.Contains(err.Error(), "QEMU has 17 connections") {
		t.Errorf("one more is %v", err)
	}
	// A source without a limit meets the target's.
	_, err := p.outgoing().Dial(t.Context(), migrationwire.Stream)
	if err == nil || !strings.Contains(err.Error(), "the virt-handler on node node2 refuses: migration m has 17 connections of the channel \"stream\" already") {
		t.Errorf("one more at the target is %v", err)
	}
	for _, conn := range all[:2] {
		_ = conn.Close()
	}
	// Ended connections make room.
	p.awaitAdmission(migrationwire.Stream)
}

func TestAStreamThatCannotBeMadeEndsQEMUsConnectionWithAReason(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(p *pair, f *Forward)
		want    string
	}{
		"the migration is not expected": {func(*pair, *Forward) {}, `the virt-handler on node node2 refuses: this node expects no migration "m" of VMI ns/vm (UID "u") from node node1`},
		"there is no QEMU yet": {func(p *pair, _ *Forward) { p.expect(&Facts{}, newEar()) },
			"the virt-handler on node node2 refuses: the migration's QEMU can't be reached"},
		"nobody is there": {func(p *pair, _ *Forward) { p.stop() }, "connection refused"},
		"another node is there": {func(_ *pair, f *Forward) { f.Outgoing.Node = "node3" },
			"the certificate of node3.virt-handler.kubevirt.svc is not accepted"},
		"somebody else has connected": {func(_ *pair, f *Forward) {
			f.Admit = func(*net.UnixConn) error { return errors.New("process 1 is in no cgroup of pod p") }
		}, "a process that is not the guest's has connected to the migration's socket: process 1 is in no cgroup of pod p"},
	} {
		t.Run(name, func(t *testing.T) {
			p := meet(t)
			f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
			c.arrange(p, f)
			stop := p.forward(f)
			ends(t, p.dialSource())
			stop()
			if err := f.Failure(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the failure is %v, want %q", err, c.want)
			}
		})
	}
}

func TestOnlyTheRecordedSourceIsAdmitted(t *testing.T) {
	p := meet(t)
	p.qemu()
	e := newEar()
	forget := p.expect(&Facts{}, e)
	other := p.authority.Handler(t, "node3")
	for name, c := range map[string]struct {
		change func(o *Outgoing)
		ok     bool
	}{
		"the source":                      {func(*Outgoing) {}, true},
		"another node":                    {func(o *Outgoing) { o.TLS = other.PeerClientConfig }, false},
		"another migration":               {func(o *Outgoing) { o.Header.MigrationUID = "m2" }, false},
		"an earlier VMI of the name":      {func(o *Outgoing) { o.Header.VMIUID = "u2" }, false},
		"a VMI of another name":           {func(o *Outgoing) { o.Header.Name = "vm2" }, false},
		"a VMI of another namespace":      {func(o *Outgoing) { o.Header.Namespace = "ns2" }, false},
		"a header that names nothing":     {func(o *Outgoing) { o.Header = migrationwire.Header{} }, false},
		"a migration with an empty UID":   {func(o *Outgoing) { o.Header.MigrationUID = "" }, false},
		"a header that is long and loud ": {func(o *Outgoing) { o.Header.MigrationUID = strings.Repeat("\x1b", 600) }, false},
	} {
		for _, channel := range []migrationwire.Channel{migrationwire.Control, migrationwire.Stream} {
			o := p.outgoing()
			c.change(o)
			conn, err := o.Dial(t.Context(), channel)
			if (err == nil) != c.ok {
				t.Errorf("%s, %s: %v", name, channel, err)
			}
			var refusal *Refusal
			if !c.ok && (!errors.As(err, &refusal) || refusal.Node != "node2" || strings.Contains(err.Error(), "\x1b")) {
				t.Errorf("%s, %s: it is refused with %q", name, channel, err)
			}
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	e.await(t, "the end of the source's control connection", func(e *ear) bool { return slices.Equal(e.connected, []bool{true, false}) })
	forget()
	if _, err := p.outgoing().Dial(t.Context(), migrationwire.Control); err == nil {
		t.Error("a migration that is over is still taken")
	}
	if (&Expected{MigrationUID: "m"}).admits(migrationwire.Header{MigrationUID: "m"}, "") {
		t.Error("a migration without a recorded source takes one without a node")
	}
}

// A hostile caller's use of time and memory must be bounded, and nobody else may wait.
func TestAHostileCaller(t *testing.T) {
	met := time.Now()
	p := meetWithin(t, Limits{})
	p.expect(&Facts{}, newEar())
	t.Run("says nothing in its handshake", func(t *testing.T) {
		began := time.Now()
		conn, err := net.Dial("tcp", p.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ends(t, conn)
		if d := time.Since(began); d < migrationwire.Greeting-time.Second {
			t.Errorf("it was cut after %v already", d)
		}
	})
	t.Run("says its header slowly", func(t *testing.T) {
		conn := p.raw()
		go func() {
			for range time.Tick(100 * time.Millisecond) { // the test varies the pace
				if _, err := conn.Write([]byte{0}); err != nil {
					return
				}
			}
		}()
		ends(t, conn)
	})
	t.Run("says a header that has no end", func(t *testing.T) {
		conn := p.raw()
		_, _ = conn.Write(append([]byte{0xff, 0xff}, make([]byte, 1<<20)...))
		ends(t, conn)
	})
	t.Run("says no JSON", func(t *testing.T) {
		conn := p.raw()
		_, _ = conn.Write([]byte("\x00\x04nope"))
		ends(t, conn)
	})
	t.Run("is of no virt-handler's kind", func(t *testing.T) {
		conn, err := net.Dial("tcp", p.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		ends(t, conn)
	})
	t.Run("connects again and again and says nothing", func(t *testing.T) {
		var all []net.Conn
		for range 3 * greeting.MaxOpen {
			conn, err := net.Dial("tcp", p.address.String())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
		}
		for _, conn := range all {
			ends(t, conn)
			_ = conn.Close()
		}
		// Its own address must wait; soon after, it must be admitted again.
		p.awaitAdmission(migrationwire.Control)
	})
	// Twenty lines at once, and then one every five seconds.
	if n, most := p.log.with(""), 21+int(time.Since(met)/(5*time.Second)); n == 0 || n > most {
		t.Errorf("%d lines were logged, and at most %d may be", n, most)
	}
	p.stop()
	if n := len(p.server.calls.byMigration) + p.server.greetings.Open(); n > 0 {
		t.Errorf("%d things are remembered of callers that are gone", n)
	}
}

// converse makes the source maintain its control connection until stop is called.
func (p *pair) converse(o *Outgoing, mine *Facts, e *ear) (stop func()) {
	return p.talk(o, Conversation{Mine: mine, Heard: e.heard, Connected: e.link})
}

func (p *pair) talk(o *Outgoing, c Conversation) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Control(ctx, c)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	p.t.Cleanup(stop)
	return stop
}

func TestFactsGoBothWaysAtOnce(t *testing.T) {
	p := meet(t)
	var ofSource, ofTarget Facts
	source, target := newEar(), newEar()
	ofTarget.Publish(migrationwire.Ready)
	p.expect(&ofTarget, target)
	stop := p.converse(p.outgoing(), &ofSource, source)
	source.awaitKinds(t, migrationwire.Ready)
	ofSource.Publish(migrationwire.Released)
	target.awaitKinds(t, migrationwire.Released)
	ofTarget.Publish(migrationwire.Ran)
	ofTarget.Publish(migrationwire.Ran)
	source.awaitKinds(t, migrationwire.Ready, migrationwire.Ran)
	stop()
	for _, e := range []*ear{source, target} {
		e.await(t, "the end of the connection", func(e *ear) bool { return slices.Equal(e.connected, []bool{true, false}) })
	}
}

// Each connection must bring all of them at once.
func TestTheTargetHearsOfDisks(t *testing.T) {
	p := meet(t)
	disks := []migrationwire.Disk{}
	for i := range 2*migrationwire.PlugsInFrame + 1 {
		disks = append(disks, migrationwire.Disk{Volume: fmt.Sprint("volume", i), Bus: "scsi", Number: i})
	}
	heard := make(chan []migrationwire.Disk, 2)
	x := p.expected(&Facts{}, newEar())
	x.Target.HeardDisks = func(told []migrationwire.Disk) { heard <- told }
	t.Cleanup(p.expectations.Expect(x))
	var ofSource Facts
	ofSource.PublishDisks(disks)
	for range 2 {
		stop := p.converse(p.outgoing(), &ofSource, newEar())
		if told := <-heard; !slices.Equal(told, disks) {
			t.Errorf("the target hears of %d disks, want %d", len(told), len(disks))
		}
		stop()
	}
}

// The target's next virt-handler knows only QEMU's state.
func TestAfterARestartAllFactsAreSaidAgain(t *testing.T) {
	p := meet(t)
	var ofSource Facts
	source, target := newEar(), newEar()
	p.expect(&Facts{}, target)
	ofSource.Publish(migrationwire.Released)
	p.converse(p.outgoing(), &ofSource, source)
	target.awaitKinds(t, migrationwire.Released)
	address := p.address.String()
	p.stop()
	source.await(t, "the end of the connection", func(e *ear) bool { return slices.Contains(e.connected, false) })
	p.expectations = &Expectations{}
	p.serve(address)
	// Its driver starts later than its listener.
	next := newEar()
	var ofTarget Facts
	ofTarget.Publish(migrationwire.Ran)
	p.expect(&ofTarget, next)
	next.awaitKinds(t, migrationwire.Released)
	source.awaitKinds(t, migrationwire.Ran)
	source.await(t, "another connection", func(e *ear) bool { return slices.Equal(e.connected, []bool{true, false, true}) })
}

// A source whose virt-handler was killed calls before its old connection is known to be dead; messages on that
// must be ignored.
func TestANewControlConnectionReplacesTheOldOne(t *testing.T) {
	p := meet(t)
	var ofTarget Facts
	target := newEar()
	p.expect(&ofTarget, target)
	old, err := p.outgoing().Dial(t.Context(), migrationwire.Control)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	e := newEar()
	p.converse(p.outgoing(), &Facts{}, e)
	ends(t, old)
	ofTarget.Publish(migrationwire.Ready)
	e.awaitKinds(t, migrationwire.Ready)
	target.mu.Lock()
	defer target.mu.Unlock()
	if !slices.Equal(target.connected, []bool{true}) {
		t.Errorf("the target's driver was told of connections %v", target.connected)
	}
}

func TestAForgottenMigrationsConnectionsEnd(t *testing.T) {
	p := meet(t)
	qemu := p.qemu()
	e, source := newEar(), newEar()
	forget := p.expect(&Facts{}, e)
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours})
	there := p.dialSource()
	here := accept(t, qemu)
	p.converse(p.outgoing(), &Facts{}, source)
	source.await(t, "a connection", func(e *ear) bool { return slices.Contains(e.connected, true) })
	forget()
	forget()
	ends(t, here)
	ends(t, there)
	source.await(t, "its end", func(e *ear) bool { return slices.Contains(e.connected, false) })
}

// A peer whose node is gone sends not even a close.
func TestASilentPeerIsNoticed(t *testing.T) {
	if migrationwire.Silence+migrationwire.AliveEvery > 5*time.Second {
		t.Error("a dead peer is noticed too late")
	}
	for name, c := range map[string]struct {
		limits Limits
		least  time.Duration
		want   string
	}{
		"as virt-handlers have agreed": {Limits{Greeting: patience}, migrationwire.Silence - time.Second, "has said nothing for 4s"},
		"within a limit of its own":    {Limits{Greeting: patience, Silence: time.Millisecond}, 0, "has said nothing for 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			p := meetWithin(t, c.limits)
			target := newEar()
			p.expect(&Facts{}, target)
			began := time.Now() // before the peer has sent anything, however late the test notices
			conn, err := p.outgoing().Dial(t.Context(), migrationwire.Control)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			target.await(t, "the end of the connection", func(e *ear) bool { return slices.Contains(e.connected, false) })
			// Delays by a busy machine are not counted.
			if d := time.Since(began); d < c.least {
				t.Errorf("it is given up after %v already", d)
			}
			// The target logs it after it has reported the end.
			p.log.await(t, c.want)
		})
	}
}

// A connection without a greeting in time must fail, at either end.
func TestAGreetingHasItsLimit(t *testing.T) {
	const none = time.Nanosecond
	for name, c := range map[string]struct{ target, source time.Duration }{
		"the target's": {none, patience},
		"the source's": {patience, none},
	} {
		t.Run(name, func(t *testing.T) {
			p := meetWithin(t, Limits{Greeting: c.target})
			p.expect(&Facts{}, newEar())
			o := p.outgoing()
			o.Limits.Greeting = c.source
			if conn, err := o.Dial(t.Context(), migrationwire.Control); err == nil {
				_ = conn.Close()
				t.Error("the connection is accepted after its time")
			}
		})
	}
}

// Messages beside the peer's own facts must change nothing, and too many must end the connection.
func TestAHostilePeerOnTheControlConnection(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(conn net.Conn)
		want string
	}{
		"facts that are not its own": {func(conn net.Conn) {
			for _, kind := range []migrationwire.Kind{migrationwire.Ran, migrationwire.Never, migrationwire.Ready, "Later"} {
				_ = migrationwire.Write(conn, migrationwire.Message{Kind: kind, MigrationUID: "m"})
			}
			_ = migrationwire.Write(conn, migrationwire.Message{Kind: migrationwire.Released, MigrationUID: "m2"})
		}, `speaks of migration \"m2\" on the connection of m`},
		"the same without an end": {func(conn net.Conn) {
			for migrationwire.Write(conn, migrationwire.Message{Kind: migrationwire.Alive, MigrationUID: "m"}) == nil {
			}
		}, "says more than 10 messages a second"},
		"no message": {func(conn net.Conn) { _, _ = conn.Write([]byte("\x00\x01x")) }, "not what it must be"},
		"its end":    {func(conn net.Conn) { _ = conn.Close() }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			p := meet(t)
			target := newEar()
			p.expect(&Facts{}, target)
			conn, err := p.outgoing().Dial(t.Context(), migrationwire.Control)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			c.say(conn)
			target.await(t, "the end of the connection", func(e *ear) bool { return slices.Contains(e.connected, false) })
			if len(target.kinds) > 0 {
				t.Errorf("heard is %v", target.kinds)
			}
			// It is logged after the target has noticed the end, and not if the server stops before.
			p.log.await(t, c.want)
		})
	}
}

func TestWhatOthersCauseIsLoggedSeldom(t *testing.T) {
	var l lines
	s := newLimitedLog(l.logger())
	for range 1000 {
		s.info("refused")
	}
	if n := l.with("refused"); n < 20 || n > 25 {
		t.Errorf("%d lines of a thousand are logged", n)
	}
}

// TestADiscardedStreamIsReadToItsEnd: a QEMU that waits for a target that does not read goes on, sees no end, and ends the
// stream itself.
func TestADiscardedStreamIsReadToItsEnd(t *testing.T) {
	p := meet(t)
	p.expect(&Facts{}, newEar())
	listener := p.qemu()
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	stop := p.forward(f)
	source := p.dialSource()
	if _, err := source.Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	target := accept(t, listener) // it reads nothing
	const more = 256 << 20        // more than fits into all buffers on the way
	chunk := make([]byte, 1<<20)
	for n, took, err := 0, 0, error(nil); !os.IsTimeout(err); n += took {
		_ = source.SetWriteDeadline(time.Now().Add(time.Second))
		if took, err = source.Write(chunk); n > more || err != nil && !os.IsTimeout(err) {
			t.Fatalf("a target that does not read takes %d bytes: %v", n, err)
		}
	}
	_ = source.SetWriteDeadline(time.Time{})
	wrote := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < more && err == nil; n += len(chunk) {
			_, err = source.Write(chunk)
		}
		wrote <- err
	}()
	f.Discard()
	if err := <-wrote; err != nil {
		t.Fatalf("QEMU could not go on: %v", err)
	}
	ends(t, target)
	_ = source.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := source.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
		t.Errorf("QEMU reads %d bytes: %v", n, err)
	}
	_ = source.Close()
	stop()
	if err := f.failure; err != nil {
		t.Errorf("it counts as a failure: %v", err)
	}
}
