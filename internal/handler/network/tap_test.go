package network

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TestMain is also the program that makes taps: it refuses a thread that was not marked.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == TapCommand {
		status, err := os.ReadFile("/proc/self/status")
		if err == nil && !bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n")) {
			err = errors.New("run by a thread whose context was not set")
		}
		if err == nil && len(os.Environ()) > 0 {
			err = fmt.Errorf("the environment is virt-handler's: %v", os.Environ())
		}
		if err == nil {
			err = RunTapCommand(os.Args[2:])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// openTun opens the pod's /dev/net/tun.
func openTun() (*os.File, error) { return os.OpenFile(layout.TUNDevice, os.O_RDWR, 0) }

func TestATapIsMadeByAProgramOfTheThreadsContext(t *testing.T) {
	namespace := newNetNS(t)
	nl := handle(t, namespace)
	for _, multiQueue := range []bool{false, true} {
		// Like an SELinux context, this is a property of the thread that a child inherits.
		marked := 0
		taps := &TapChild{Open: openTun, Enter: func() error {
			marked = unix.Gettid()
			return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}}
		name := fmt.Sprintf("tap-%v", multiQueue)
		in(t, namespace, func() error { return Pod{Taps: taps}.makeTap(name, multiQueue) })
		link, err := nl.LinkByName(name)
		check(t, err)
		tap, ok := link.(*netlink.Tuntap)
		if !ok || tap.NonPersist || tap.Owner != layout.QEMUUser {
			t.Errorf("%s: %+v, want a persistent tap of user %d", name, link, layout.QEMUUser)
		}
		if multiQueue {
			openQueue(t, namespace, name).Close()
		} else {
			openTap(t, namespace, name, layout.QEMUUser).Close()
		}
		ends(t, marked)
	}
}

// Everything that the thread runs has the context.
func ends(t *testing.T, thread int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for tick := time.Tick(time.Millisecond); ; <-tick {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		if os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("thread %d, which has the context of a launcher for what it executes, goes on", thread)
		}
	}
}

func TestNoTapIsMadeUnderTheWrongContext(t *testing.T) {
	namespace := newNetNS(t)
	refusal := errors.New("the policy says no")
	for what, tc := range map[string]struct {
		enter func() error
		name  string
		says  string
	}{
		"the context can't be set":   {func() error { return refusal }, "tap0", refusal.Error()},
		"the thread's is another":    {func() error { return nil }, "tap0", "whose context was not set"},
		"what the program says":      {func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, "a-name-that-is-too-long", "invalid argument"},
		"a name that is like a flag": {func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, "tap/1", "creating it"},
	} {
		taps := &TapChild{Open: openTun, Enter: tc.enter}
		err := inside(namespace, func() error { return Pod{Taps: taps}.makeTap(tc.name, false) })
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", what, err, tc.says)
		}
	}
	links, err := handle(t, namespace).LinkList()
	if err != nil || len(links) != 1 {
		t.Errorf("beside lo there are %v, %v", links, err)
	}
}

func TestTheTapProgramTakesOnlyWhatVirtHandlerGives(t *testing.T) {
	for _, args := range [][]string{nil, {"tap0", "--other"}, {"tap0", tapQueues, "more"}} {
		if err := RunTapCommand(args); err == nil || !strings.Contains(err.Error(), "arguments") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
