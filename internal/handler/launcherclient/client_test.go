package launcherclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
)

type launcher struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
}

func pair(t *testing.T) (*launcher, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return &launcher{t: t, conn: theirs, in: bufio.NewScanner(theirs)}, ours
}

func (l *launcher) say(message launch.Message) {
	line, err := json.Marshal(message)
	if err != nil {
		l.t.Error(err)
	}
	l.sayLine(string(line))
}

func (l *launcher) sayLine(line string) {
	if _, err := l.conn.Write([]byte(line + "\n")); err != nil {
		l.t.Error(err)
	}
}

func (l *launcher) hear() launch.Request {
	var request launch.Request
	if !l.in.Scan() {
		l.t.Error("the client closed the connection")
		return request
	}
	if err := json.Unmarshal(l.in.Bytes(), &request); err != nil {
		l.t.Error(err)
	}
	return request
}

func TestConversation(t *testing.T) {
	l, conn := pair(t)
	exit, at := &launch.Exit{Reason: launch.ReasonGuestShutdown}, time.Unix(1<<30, 0)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseWaiting}}})
		prepare := l.hear()
		l.say(launch.Message{Reply: &launch.Reply{ID: prepare.ID + 100, Error: "to nobody's question"}})
		l.say(launch.Message{Reply: &launch.Reply{ID: prepare.ID, Images: []launch.PreparedImage{{Name: "root", VirtualSize: 7}}}})
		start := l.hear()
		l.say(launch.Message{Reply: &launch.Reply{ID: start.ID, State: &launch.State{Phase: launch.PhaseRunning, QEMUPID: 9}}})
		stop := l.hear()
		l.say(launch.Message{Reply: &launch.Reply{ID: stop.ID, Error: "the guest is busy"}})
		l.say(launch.Message{Event: &launch.Event{Exited: exit, ExitedAt: at}})
		l.conn.Close()
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.State().Phase; got != launch.PhaseWaiting {
		t.Errorf("the hello's phase is %q", got)
	}
	images, err := c.Prepare(t.Context(), []launch.Image{{Name: "root"}})
	if err != nil || images["root"].VirtualSize != 7 {
		t.Errorf("Prepare: %v, %v", images, err)
	}
	state, err := c.Start(t.Context(), launch.Start{Args: []string{"-S"}})
	if err != nil || state.QEMUPID != 9 || c.State().Phase != launch.PhaseRunning {
		t.Errorf("Start: %v, %v", state, err)
	}
	if err := c.Stop(t.Context(), launch.Stop{GracePeriodSeconds: 3}); err == nil || err.Error() != "stopping QEMU: the guest is busy" {
		t.Errorf("Stop: %v", err)
	}
	<-c.Done()
	if c.Exit() == nil || *c.Exit() != *exit || c.State().Phase != launch.PhaseExited || !c.State().ExitedAt.Equal(at) {
		t.Errorf("Exit: %v, %+v", c.Exit(), c.State())
	}
	if _, err := c.Prepare(t.Context(), nil); err == nil {
		t.Error("a request on a closed connection succeeded")
	}
}

// A guest that a user freezes must be known at once; the consequences may come after a while.
func TestAFrozenGuestIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, conn := pair(t)
		go l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseRunning, Quiesces: true}}})
		c, err := New(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if c.State().Frozen {
			t.Error("it is frozen before anything was said")
		}
		l.say(launch.Message{Event: &launch.Event{Frozen: new(true)}})
		<-c.Changed()
		if !c.State().Frozen {
			t.Error("it is not frozen")
		}
		l.say(launch.Message{Event: &launch.Event{Frozen: new(false)}})
		l.say(launch.Message{Event: &launch.Event{Frozen: new(true)}})
		l.say(launch.Message{Event: &launch.Event{Frozen: new(false)}})
		time.Sleep(freezePause - time.Second)
		if !c.State().Frozen {
			t.Error("it is thawed within the pause")
		}
		<-c.Changed()
		if c.State().Frozen {
			t.Error("it is frozen after the pause")
		}
		l.conn.Close()
		c.Close()
	})
}

func TestConnectionEndsWithARequestOpen(t *testing.T) {
	l, conn := pair(t)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{}})
		l.hear()
		l.conn.Close()
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Start(t.Context(), launch.Start{}); !errors.Is(err, ErrClosed) {
		t.Errorf("the error is %v", err)
	}
	if err := c.Err(); err == nil {
		t.Error("Err() does not say why the connection ended")
	}
}

func TestCallerGivesUp(t *testing.T) {
	l, conn := pair(t)
	go l.say(launch.Message{Hello: &launch.Hello{}})
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	// Nobody reads or answers the request.
	if _, err := c.Start(ctx, launch.Start{}); err == nil {
		t.Error("the request succeeded")
	}
}

func TestBadBeginnings(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"no JSON":         {"hello", "invalid character"},
		"another message": {`{"event":{}}`, "no hello"},
		"endless line":    {strings.Repeat("x", maxMessage+1), "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			l, conn := pair(t)
			go func() { _, _ = l.conn.Write([]byte(tc.line + "\n")) }()
			if _, err := New(t.Context(), conn); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		_, conn := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := New(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}

// A caller that gives up must not break the connection for others.
func TestCallerGivesUpAfterItsRequestIsWritten(t *testing.T) {
	l, conn := pair(t)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseWaiting}}})
		for range 50 {
			l.hear()
		}
		last := l.hear()
		l.say(launch.Message{Reply: &launch.Reply{ID: last.ID}})
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		// The context ends in the very moment in which the write is done.
		c.conn = &onWrite{Conn: conn, then: cancel}
		if err := c.Stop(ctx, launch.Stop{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("the request that was given up: %v", err)
		}
	}
	c.conn = conn
	if err := c.Stop(t.Context(), launch.Stop{}); err != nil {
		t.Errorf("the request after it: %v", err)
	}
}

// onWrite calls then after each write.
type onWrite struct {
	net.Conn
	then func()
}

func (o *onWrite) Write(data []byte) (int, error) {
	n, err := o.Conn.Write(data)
	o.then()
	return n, err
}

// virt-launcher's process is only as trustworthy as its guest, and its messages get into the VMI's status.
func TestEndlessSentencesAreCut(t *testing.T) {
	l, conn := pair(t)
	endless := strings.Repeat("ä", 100<<10)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseWaiting}}})
		l.say(launch.Message{Reply: &launch.Reply{ID: l.hear().ID, Error: endless}})
		l.say(launch.Message{Event: &launch.Event{Exited: &launch.Exit{Reason: launch.ReasonCrashed, Message: endless}}})
		l.conn.Close()
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Prepare(t.Context(), nil); err == nil || len(err.Error()) > 1100 {
		t.Errorf("an answer's error has %d bytes", len(err.Error()))
	}
	<-c.Done()
	if got := len(c.Exit().Message); got != 1024 {
		t.Errorf("the end's message has %d bytes", got)
	}
}

// A short text decodes to much.
func TestAMessageThatDecodesToMuchEndsTheConnection(t *testing.T) {
	l, conn := pair(t)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseWaiting}}})
		l.hear()
		line := `{"reply": {"id": 1, "images": [` + strings.Repeat("{},", 300_000) + `{}]}}` + "\n"
		_, _ = l.conn.Write([]byte(line)) // the client may have enough before the end
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	images, err := c.Prepare(t.Context(), nil)
	if !errors.Is(err, ErrClosed) || len(images) > 0 || c.Err() == nil || !strings.Contains(c.Err().Error(), "values") {
		t.Errorf("it was taken: %d images, %v, and then %v", len(images), err, c.Err())
	}
}

func quiescing(t *testing.T, replies ...launch.Reply) *Client {
	t.Helper()
	l, conn := pair(t)
	go func() {
		l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseRunning, Quiesces: true}}})
		for _, reply := range replies {
			reply.ID = l.hear().ID
			l.say(launch.Message{Reply: &reply})
		}
	}()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestHolds(t *testing.T) {
	long := strings.Repeat("x", 2000)
	c := quiescing(t,
		launch.Reply{Hold: &launch.Hold{Token: long, Holder: long, Method: launch.Method(long), Ended: long, Milliseconds: -5}},
		launch.Reply{Hold: &launch.Hold{Token: "t", Milliseconds: 1 << 60}},
		launch.Reply{Hold: &launch.Hold{}})
	h, err := c.Quiesce(t.Context(), launch.Quiesce{Holder: "snap"})
	want := launch.Hold{Token: long[:64], Holder: long[:64], Method: launch.Method(long[:64]), Ended: long[:maxText]}
	if err != nil || h != want {
		t.Errorf("a long answer: %+v, %v", h, err)
	}
	if h, err := c.Held(t.Context(), launch.Held{Verify: true}); err != nil || h.Token != "t" || h.Milliseconds != (24*time.Hour).Milliseconds() {
		t.Errorf("a hold: %+v, %v", h, err)
	}
	if h, err := c.Release(t.Context(), launch.Release{Holder: "snap"}); err != nil || h.Lasts() {
		t.Errorf("nothing to release: %+v, %v", h, err)
	}
}

func TestWhatIsNotHeld(t *testing.T) {
	c := quiescing(t, launch.Reply{Error: "it is being migrated", Refused: true}, launch.Reply{Error: "the agent is silent"}, launch.Reply{})
	var refused *Refusal
	if _, err := c.Quiesce(t.Context(), launch.Quiesce{Holder: "snap"}); !errors.As(err, &refused) || refused.Message != "it is being migrated" {
		t.Errorf("a refusal: %v", err)
	}
	var failed *NotHeld
	if _, err := c.Quiesce(t.Context(), launch.Quiesce{Holder: "snap"}); !errors.As(err, &failed) || failed.Message != "the agent is silent" {
		t.Errorf("a failure: %v", err)
	}
	if _, err := c.Held(t.Context(), launch.Held{}); err == nil {
		t.Error("an answer without a hold is none")
	}
}

func TestAnOldLauncherHoldsNoGuest(t *testing.T) {
	l, conn := pair(t)
	go l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseRunning}}})
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var failed *NotHeld
	if _, err := c.Quiesce(t.Context(), launch.Quiesce{Holder: "snap"}); !errors.As(err, &failed) || !strings.Contains(err.Error(), "restart or migrate the VM") {
		t.Errorf("it answers %v", err)
	}
}

// A hostile virt-launcher may report any number of changes.
func TestAnInterruptedPostCopyIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, conn := pair(t)
		go l.say(launch.Message{Hello: &launch.Hello{State: launch.State{Phase: launch.PhaseRunning, Recovers: true, Arrival: launch.Arrival{Broken: true}}}})
		c, err := New(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if c.State().Arrival != (launch.Arrival{Broken: true}) {
			t.Errorf("at first it is %+v", c.State().Arrival)
		}
		l.say(launch.Message{Event: &launch.Event{Arrival: &launch.Arrival{}}})
		<-c.Changed()
		if c.State().Arrival != (launch.Arrival{}) {
			t.Errorf("it is still %+v", c.State().Arrival)
		}
		broken := launch.Arrival{Broken: true, Ran: true}
		for range 100 {
			l.say(launch.Message{Event: &launch.Event{Arrival: &launch.Arrival{}}})
			l.say(launch.Message{Event: &launch.Event{Arrival: &broken}})
		}
		time.Sleep(arrivalPause - time.Millisecond)
		if c.State().Arrival != (launch.Arrival{}) {
			t.Error("it has changed within the pause")
		}
		<-c.Changed()
		if c.State().Arrival != broken || !c.State().Recovers {
			t.Errorf("it is %+v", c.State())
		}
		c.Close()
	})
}

func TestAPostCopyIsRecovered(t *testing.T) {
	c := quiescing(t, launch.Reply{}, launch.Reply{Error: "it is not paused", Refused: true}, launch.Reply{Error: "there is no such folder"})
	if listens, err := c.Recover(t.Context()); !listens || err != nil {
		t.Errorf("%v, %v", listens, err)
	}
	if listens, err := c.Recover(t.Context()); listens || err != nil {
		t.Errorf("a stream that is whole: %v, %v", listens, err)
	}
	if listens, err := c.Recover(t.Context()); listens || err == nil || !strings.Contains(err.Error(), "no such folder") {
		t.Errorf("a failure: %v, %v", listens, err)
	}
}
