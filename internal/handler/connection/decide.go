package connection

import (
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

type observation struct {
	linked   bool
	ended    bool // virt-launcher has closed the link
	pending  bool
	failure  error
	launcher launch.State
	exit     *launch.Exit // reported on this link or an earlier one
	exitedAt time.Time
	stopping *Stopping
}

// exitTime returns the time of QEMU's end by virt-launcher, but not after seen. A hostile virt-launcher may say any time,
// an old one says none. The result has the monotonic clock of seen, because the node's clock may change.
func exitTime(said, seen time.Time) time.Time {
	if said.IsZero() || said.After(seen) {
		return seen
	}
	return seen.Add(said.Sub(seen))
}

// decide returns the facts except the Link. QEMU's exit takes precedence: no launcher starts a second QEMU.
func decide(o observation) Facts {
	f := Facts{Exit: o.exit, ExitedAt: o.exitedAt, Failure: o.failure}
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
