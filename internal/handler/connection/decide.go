package connection

import (
	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type observation struct {
	// ended means that virt-launcher has closed the link.
	linked, ended bool
	pending       bool
	failure       error
	launcher      launch.State
	// exit was reported on this link or an earlier one.
	exit     *launch.Exit
	stopping *Stopping
}

// decide returns the facts except the Link. QEMU's exit takes precedence: no launcher starts a second QEMU.
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
		f.State, f.Launcher = vmihandler.LinkUp, o.launcher
	case o.pending:
		f.State = vmihandler.LinkPending
	}
	return f
}
