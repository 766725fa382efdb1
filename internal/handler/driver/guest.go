package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/plug"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

// commandTimeout bounds a QMP command that QEMU answers at once; its main loop
// may be busy with storage for a while.
const commandTimeout = 10 * time.Second

// guest is a QEMU that runs, through its monitor. What events change is guarded
// by the driver's mu.
type guest struct {
	monitor *qmp.Client
	// pid is QEMU's process, for its figures only: nothing is done to it.
	pid     int
	private *podpath.Dir
	// agents has a place for each conversation with a guest agent that the node
	// may have at a time.
	agents chan struct{}
	// plugs looks after the hotplugged disks.
	plugs *plug.Worker
	// growing are the disks that follow their claims.
	growing growing

	// runState is QEMU's as it was last asked for; stale asks for it again.
	runState string
	stale    bool
	// stall is what is remembered of an I/O error that has stopped the guest,
	// failedDisks where it was, and pausedByUser that its user has paused it too.
	stall        vmi.Stall
	failedDisks  []vmi.FailedDisk
	pausedByUser bool
	// halted means that the guest's CPUs have never been started, because they wait
	// for volumes (vmi.Halt).
	halted bool
	// begun means that they have: nothing makes a guest halted again. It is the Run
	// goroutine's own.
	begun bool
	// resets holds a value once QEMU has told of a reset.
	resets chan struct{}
	// power keeps a user's verbs and virt-handler's own attempts to resume the
	// guest apart: each looks at the run state and acts on what it saw.
	power sync.Mutex
	// agentOpen says that the guest agent listens; told is what it told, which
	// stays a while after it has gone.
	agentOpen bool
	told      *vmi.Agent
	// asked is when the agent was asked last.
	asked time.Time
	// forget ends the goroutine that asks the agent, nil when none does.
	forget context.CancelFunc
	// fading runs out when what a vanished agent told is to be forgotten, nil
	// while there is nothing to forget; faded says that it has.
	fading *time.Timer
	faded  bool
}

// attached reports whether there is a guest whose monitor is connected. The caller
// holds d.mu.
func (d *Driver) attached() bool { return d.guest != nil && d.guest.alive() }

// alive reports whether the monitor is connected.
func (g *guest) alive() bool {
	select {
	case <-g.monitor.Done():
		return false
	default:
		return true
	}
}

// closeGuest lets go of a monitor. The caller may hold d.mu, which the receiver
// of events takes: so it does not wait for the last of them.
func (d *Driver) closeGuest(g *guest) {
	if g == nil {
		return
	}
	if g.forget != nil {
		g.forget()
	}
	if g.fading != nil {
		g.fading.Stop()
	}
	g.plugs.Close()
	d.helpers.Go(func() { _ = g.monitor.Close() }) // it fails in no way, and ends at once
}

// openGuest connects to QEMU's monitor and asks what has happened so far.
func (d *Driver) openGuest(ctx context.Context) (*guest, error) {
	asking, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	conn, err := d.link.private.Dial(asking, layout.QMPSocket)
	if err != nil {
		return nil, fmt.Errorf("connecting to QEMU's monitor: %w", err)
	}
	g := &guest{private: d.link.private, agents: d.env.agents, plugs: d.newPlugs(), growing: newGrowing(), resets: make(chan struct{}, 1)}
	if g.pid, err = podpath.PeerPID(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	g.monitor, err = qmp.New(asking, conn, func(e qmp.Event) { d.onEvent(g, e) })
	if err != nil {
		return nil, err
	}
	err = d.askRunState(asking, g)
	if err == nil {
		err = g.ask(asking)
	}
	if err != nil {
		d.closeGuest(g)
		return nil, err
	}
	d.helpers.Go(func() {
		select {
		case <-ctx.Done():
		case <-g.monitor.Done():
			d.poke()
		}
	})
	return g, nil
}

// ask finds out what events would have told, had anyone listened.
func (g *guest) ask(ctx context.Context) error {
	var chardevs []struct {
		// Filename names the socket.
		Filename string `json:"filename"`
		Open     bool   `json:"frontend-open"`
	}
	if err := g.monitor.Execute(ctx, "query-chardev", nil, &chardevs); err != nil {
		return err
	}
	for _, c := range chardevs {
		if strings.Contains(c.Filename, layout.Socket(layout.AgentSocket)) {
			g.agentOpen = c.Open
		}
	}
	return nil
}

// onEvent notes what QEMU tells. It is called from the monitor's goroutine.
func (d *Driver) onEvent(g *guest, e qmp.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.tellPlugs(e)
	if e.Name == "RESET" {
		select {
		case g.resets <- struct{}{}:
		default:
		}
	}
	switch e.Name {
	case "DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "DEVICE_TRAY_MOVED":
	case "STOP", "RESUME", "RESET", "BLOCK_IO_ERROR", "WATCHDOG", "GUEST_PANICKED", "SUSPEND", "WAKEUP", "SHUTDOWN", "MIGRATION":
		g.stale = true
	case "VSERPORT_CHANGE":
		var change struct {
			ID   string `json:"id"`
			Open bool   `json:"open"`
		}
		if err := json.Unmarshal(e.Data, &change); err != nil || change.ID != machine.AgentPort {
			return
		}
		g.agentOpen = change.Open
	default:
		return
	}
	d.log.V(1).Info("QEMU reported an event", "event", e.Name)
	d.poke()
}

// refresh follows up on events: what they say may be out of date by the time
// they are read, so QEMU is asked.
func (d *Driver) refresh(ctx context.Context) {
	d.mu.Lock()
	g := d.guest
	if !d.attached() {
		d.mu.Unlock()
		return
	}
	stale := g.stale || passing(g.runState)
	g.stale = false
	d.followAgent(ctx, g)
	d.mu.Unlock()
	if !stale {
		return
	}
	asking, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := d.askRunState(asking, g); err != nil {
		// QEMU is ending, which comes as an event of its own, or is stuck: then
		// its last state is the best that is known.
		d.log.V(1).Info("QEMU did not say its state", "reason", err.Error())
	}
}
