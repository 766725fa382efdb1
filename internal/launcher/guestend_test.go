package launcher

import (
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
)

// ends of a process.
var (
	clean  = exitStatus{}
	failed = exitStatus{wait: syscall.WaitStatus(1 << 8), stderr: "qemu: it broke"}
	killed = exitStatus{wait: syscall.WaitStatus(syscall.SIGKILL)}
	abort  = exitStatus{wait: syscall.WaitStatus(syscall.SIGABRT), stderr: "assertion failed"}
)

func TestReasons(t *testing.T) {
	type event struct{ name, data string }
	guestShutdown := event{"SHUTDOWN", `{"guest":true,"reason":"guest-shutdown"}`}
	quit := event{"SHUTDOWN", `{"guest":false,"reason":"host-qmp-quit"}`}
	for name, c := range map[string]struct {
		guest  guest
		events []event
		status exitStatus
		want   launch.Exit
	}{
		"the guest powers itself off": {
			events: []event{guestShutdown},
			want:   launch.Exit{Reason: launch.ReasonGuestShutdown},
		},
		"the guest follows the power button": {
			events: []event{{"POWERDOWN", ""}, guestShutdown},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown},
		},
		"the guest reboots instead of following the button, and powers off later": {
			events: []event{{"POWERDOWN", ""}, {"RESET", `{"guest":true,"reason":"guest-reset"}`}, guestShutdown},
			want:   launch.Exit{Reason: launch.ReasonGuestShutdown},
		},
		"the guest reboots where a reboot ends it": {
			events: []event{{"SHUTDOWN", `{"guest":true,"reason":"guest-reset"}`}},
			want:   launch.Exit{Reason: launch.ReasonGuestShutdown},
		},
		"quit over the monitor": {
			events: []event{quit},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown},
		},
		"a signal to QEMU": {
			events: []event{{"SHUTDOWN", `{"guest":false,"reason":"host-signal"}`}},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown},
		},
		"quit after a complete migration": {
			events: []event{{"MIGRATION", `{"status":"active"}`}, {"MIGRATION", `{"status":"completed"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonMigrated},
		},
		"quit after a failed migration": {
			events: []event{{"MIGRATION", `{"status":"failed"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown},
		},
		"a source that is ended by force": {
			guest:  guest{stopping: true, graceless: true, forced: true},
			events: []event{{"MIGRATION", `{"status":"completed"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonMigrated},
		},
		"a source that crashes after the guest has left": {
			events: []event{{"MIGRATION", `{"status":"completed"}`}}, status: killed,
			want: launch.Exit{Reason: launch.ReasonMigrated, Code: -1},
		},
		"a guest that goes on where it came from": {
			events: []event{{"MIGRATION", `{"status":"completed"}`}, {"RESUME", ""}, quit},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown},
		},
		"a target that is ended before its guest has run": {
			guest:  guest{incoming: true, stopping: true, graceless: true, forced: true},
			events: []event{{"MIGRATION", `{"status":"completed"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonHostShutdown, Incoming: launch.IncomingNeverRan},
		},
		"a target whose guest has run": {
			guest:  guest{incoming: true},
			events: []event{{"MIGRATION", `{"status":"completed"}`}, {"RESUME", ""}, guestShutdown},
			want:   launch.Exit{Reason: launch.ReasonGuestShutdown, Incoming: launch.IncomingRan},
		},
		"a target whose guest has run before its memory had arrived": {
			guest: guest{incoming: true},
			events: []event{{"MIGRATION", `{"status":"active"}`}, {"MIGRATION", `{"status":"postcopy-active"}`}, {"RESUME", ""},
				{"MIGRATION", `{"status":"completed"}`}, guestShutdown},
			want: launch.Exit{Reason: launch.ReasonGuestShutdown, Incoming: launch.IncomingRan},
		},
		"a target whose guest has run before its memory had arrived, and has moved on": {
			guest: guest{incoming: true},
			events: []event{{"MIGRATION", `{"status":"postcopy-active"}`}, {"RESUME", ""}, {"MIGRATION", `{"status":"completed"}`},
				{"MIGRATION", `{"status":"setup"}`}, {"MIGRATION", `{"status":"postcopy-active"}`}, {"MIGRATION", `{"status":"completed"}`}, quit},
			want: launch.Exit{Reason: launch.ReasonMigrated, Incoming: launch.IncomingRan},
		},
		"a target whose guest has moved on": {
			guest:  guest{incoming: true},
			events: []event{{"MIGRATION", `{"status":"completed"}`}, {"RESUME", ""}, {"MIGRATION", `{"status":"completed"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonMigrated, Incoming: launch.IncomingRan},
		},
		"a target whose source has ended": {
			guest: guest{incoming: true}, status: failed,
			want: launch.Exit{Reason: launch.ReasonCrashed, Code: 1, Message: "qemu: it broke", Incoming: launch.IncomingNeverRan},
		},
		"a target that has told nothing to the end": {
			guest: guest{incoming: true}, status: exitStatus{deaf: true},
			want: launch.Exit{Reason: launch.ReasonHostShutdown, Unheard: true},
		},
		"a guest whose QEMU was not heard to the end": {
			status: exitStatus{wait: failed.wait, stderr: failed.stderr, deaf: true},
			want:   launch.Exit{Reason: launch.ReasonCrashed, Code: 1, Message: "qemu: it broke", Unheard: true},
		},
		"the guest's kernel panics": {
			events: []event{{"GUEST_PANICKED", `{"action":"shutdown"}`}, {"SHUTDOWN", `{"guest":true,"reason":"guest-panic"}`}},
			want:   launch.Exit{Reason: launch.ReasonGuestPanicked},
		},
		"the guest panics while it is asked to end": {
			guest:  guest{stopping: true},
			events: []event{{"POWERDOWN", ""}, {"GUEST_PANICKED", `{"action":"shutdown"}`}},
			want:   launch.Exit{Reason: launch.ReasonGuestPanicked},
		},
		"the watchdog powers off": {
			events: []event{{"WATCHDOG", `{"action":"poweroff"}`}},
			want:   launch.Exit{Reason: launch.ReasonWatchdog},
		},
		"the watchdog has reset the guest, which powers off later": {
			events: []event{{"WATCHDOG", `{"action":"reset"}`}, {"RESET", `{"guest":false}`}, guestShutdown},
			want:   launch.Exit{Reason: launch.ReasonGuestShutdown},
		},
		"the grace period is over": {
			guest: guest{stopping: true, forced: true}, events: []event{{"POWERDOWN", ""}, quit},
			want: launch.Exit{Reason: launch.ReasonKilled, Message: "the guest did not shut down within its grace period"},
		},
		"the guest has powered itself off, and its QEMU is ended for that": {
			guest: guest{stopping: true, graceless: true, forced: true}, events: []event{guestShutdown, quit},
			want: launch.Exit{Reason: launch.ReasonGuestShutdown},
		},
		"QEMU hangs and is killed at once": {
			guest: guest{stopping: true, graceless: true, forced: true}, status: killed,
			want: launch.Exit{Reason: launch.ReasonHostShutdown, Code: -1},
		},
		"KVM fails inside the guest, which is ended for it": {
			guest: guest{stopping: true, graceless: true, forced: true, failure: launch.ReasonInternalError}, events: []event{quit},
			status: exitStatus{stderr: "KVM internal error. Suberror: 1"},
			want:   launch.Exit{Reason: launch.ReasonInternalError, Message: "KVM internal error. Suberror: 1"},
		},
		"KVM fails inside the guest without a word of QEMU's": {
			guest: guest{stopping: true, graceless: true, forced: true, failure: launch.ReasonInternalError}, events: []event{quit},
			want: launch.Exit{Reason: launch.ReasonInternalError},
		},
		"a guest that is ended for an error has panicked before": {
			guest:  guest{stopping: true, graceless: true, forced: true, failure: launch.ReasonInternalError},
			events: []event{{"GUEST_PANICKED", `{"action":"pause"}`}, quit},
			want:   launch.Exit{Reason: launch.ReasonGuestPanicked},
		},
		"QEMU has an error of its own and is ended for it": {
			guest:  guest{stopping: true, graceless: true, forced: true},
			events: []event{{"SHUTDOWN", `{"guest":false,"reason":"host-error"}`}}, status: failed,
			want: launch.Exit{Reason: launch.ReasonCrashed, Code: 1, Message: "qemu: it broke"},
		},
		"QEMU is killed by someone": {
			status: killed,
			want: launch.Exit{Reason: launch.ReasonCrashed, Code: -1,
				Message: "QEMU was ended by signal 9 (killed); if nobody killed it, the pod ran out of memory"},
		},
		"QEMU is killed while the guest shuts down": {
			guest: guest{stopping: true}, events: []event{{"POWERDOWN", ""}}, status: killed,
			want: launch.Exit{Reason: launch.ReasonCrashed, Code: -1,
				Message: "QEMU was ended by signal 9 (killed); if nobody killed it, the pod ran out of memory"},
		},
		"QEMU aborts": {
			status: abort,
			want: launch.Exit{Reason: launch.ReasonCrashed, Code: -1,
				Message: "QEMU was ended by signal 6 (aborted): assertion failed"},
		},
		"QEMU gives up": {
			status: failed,
			want:   launch.Exit{Reason: launch.ReasonCrashed, Code: 1, Message: "qemu: it broke"},
		},
		"QEMU has an error of its own": {
			events: []event{{"SHUTDOWN", `{"guest":false,"reason":"host-error"}`}},
			want:   launch.Exit{Reason: launch.ReasonCrashed, Message: "QEMU ended with code 0 and without a word"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.guest
			g.started = true
			for _, e := range c.events {
				g.recordEvent(e.name, []byte(e.data))
			}
			if got := g.exit(c.status); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestReasonsBeforeTheMonitorAnswers(t *testing.T) {
	g := guest{}
	if got := g.exit(failed); got.Reason != launch.ReasonStartFailed || got.Message != "qemu: it broke" {
		t.Errorf("QEMU refuses the machine: %+v", got)
	}
	g.incoming = true
	if got := g.exit(exitStatus{wait: failed.wait, deaf: true}); got.Incoming != launch.IncomingNeverRan {
		t.Errorf("a guest arrived before virt-handler was told of QEMU: %+v", got)
	}
	g.stopping = true
	if got := g.exit(killed); got.Reason != launch.ReasonHostShutdown {
		t.Errorf("the pod is deleted meanwhile: %+v", got)
	}
}

func TestWhatCountsOfWhyAGuestIsEnded(t *testing.T) {
	for reason, want := range map[launch.Reason]launch.Reason{
		launch.ReasonInternalError: launch.ReasonInternalError, launch.ReasonGuestPanicked: launch.ReasonGuestPanicked,
		launch.ReasonGuestShutdown: launch.ReasonGuestShutdown, launch.ReasonKilled: launch.ReasonHostShutdown, "": launch.ReasonHostShutdown,
	} {
		g := guest{started: true, stopping: true, graceless: true, forced: true}
		g.recordFailure(reason)
		if got := g.exit(clean); got.Reason != want {
			t.Errorf("ended because of %q: %+v, want %s", reason, got, want)
		}
	}
	g := guest{started: true, stopping: true, graceless: true, forced: true, powerButton: true}
	g.recordFailure(launch.ReasonGuestShutdown)
	if got := g.exit(clean); got.Reason != launch.ReasonHostShutdown {
		t.Errorf("ended because it has followed the power button: %+v", got)
	}
}

func FuzzEvent(f *testing.F) {
	f.Add("SHUTDOWN", []byte(`{"reason":"guest-shutdown"}`))
	f.Add("WATCHDOG", []byte(`[1]`))
	f.Fuzz(func(_ *testing.T, name string, data []byte) {
		g := guest{started: true}
		g.recordEvent(name, data)
		g.exit(clean)
	})
}
