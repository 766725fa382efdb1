package connection

import (
	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// observation is what is seen of the connection at one time.
type observation struct {
	// linked means that there is a link, ended that virt-launcher is gone from it.
	linked, ended bool
	pending       bool
	failure       error
	// launcher is what virt-launcher said on the link.
	launcher launch.State
	// exit is how QEMU has ended, as heard on this link or an earlier one.
	exit     *launch.Exit
	stopping *Stopping
}

// decide gives the facts but for the Link itself. QEMU's end counts more than all else: no
// launcher starts a second one.
func decide(o observation) Facts {
	f := Facts{Exit: o.exit, Failure: o.failure}
	linked := o.linked && !o.ended
	if linked {
		f.Stopping = o.stopping
	}
	switch {
	case o.exit != nil:
		f.Launcher = launch.State{Phase: launch.PhaseExited, Exit: o.exit}
	case linked:
		f.State, f.Launcher = guestlifecycle.LinkUp, o.launcher
	case o.pending:
		f.State = guestlifecycle.LinkPending
	}
	return f
}
