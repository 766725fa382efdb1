// Package connection is the way from virt-handler to the virt-launcher of a pod: it waits for
// the launcher's socket, checks who listens there, greets it, and knows how its QEMU has
// ended.
//
// A Connection has at most one Link at a time; a Link belongs to one pod and ends with it. The
// package must not decide when to connect or to stop a guest (package guestlifecycle does), and knows
// neither the API server nor QEMU's monitor.
//
//	         Connect               hello
//	none ─────────────> pending ──────────> up
//	  ^                    │ failed          │ the launcher has ended
//	  '────────────────────┴─────────────────'
//
// That QEMU has exited outlives the Link that told: a virt-launcher says so and ends.
package connection

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// Env is what the connections of a node share.
type Env struct {
	// Pods is the kubelet's folder of pods.
	Pods    string
	Watcher *podpath.Watcher
	// SELinux is the node's; nil without.
	SELinux *nodeselinux.Node
	// Belongs checks that a process is one of a pod's.
	Belongs func(peer *podpath.Peer, pod types.UID) error
}

// Owner is who a Connection works for.
type Owner struct {
	// Go runs a goroutine that the owner waits for; it ends with its context.
	Go func(func())
	// Wake is called when there is something to look at.
	Wake func()
	Now  func() time.Time
}

// Connection is the way to the virt-launcher of a VMI's pod on this node. Observe and Close
// are for one goroutine.
type Connection struct {
	env   *Env
	owner Owner

	mu      sync.Mutex
	link    *Link
	pending bool
	failure error
	// exit is how QEMU ended; it outlives the link that reported it. exitedIn is the pod in which that was.
	exit     *launch.Exit
	exitedIn types.UID
}

// New gives a Connection without a link.
func New(env *Env, owner Owner) *Connection { return &Connection{env: env, owner: owner} }

// Facts are what is known of the launcher.
type Facts struct {
	// State is how far the connection is: none while QEMU has exited, whatever the link
	// is then.
	State guestlifecycle.Link
	// Link is there while virt-launcher is connected.
	Link *Link
	// Launcher is what virt-launcher said.
	Launcher launch.State
	// Exit is how QEMU has ended; nil if it has not, or nobody has heard. ExitedIn is the pod in which that was.
	Exit     *launch.Exit
	ExitedIn types.UID
	// Failure is why the last attempt to connect has failed. It is reported once.
	Failure error
	// Stopping is what virt-launcher was told of QEMU's end; nil for nothing.
	Stopping *Stopping
}

// Observe gives what is known now, and lets go of a link that has ended.
func (c *Connection) Observe() Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := observation{pending: c.pending, failure: c.failure, exit: c.exit}
	c.failure = nil
	if c.link != nil {
		o.linked, o.ended, o.launcher, o.stopping = true, c.link.ended(), c.link.client.State(), c.link.stopping
		// What was said last is known when the end is.
		if exit := c.link.client.Exit(); exit != nil {
			c.exit, c.exitedIn, o.exit = exit, c.link.Pod, exit
		}
	}
	if o.linked && o.ended {
		c.link.close()
		c.link = nil
	}
	facts := decide(o)
	facts.Link, facts.ExitedIn = c.link, c.exitedIn
	return facts
}

// Connect waits for the launcher of a pod and connects to it, in a goroutine of its own, so
// that the owner notices other things meanwhile.
func (c *Connection) Connect(ctx context.Context, pod types.UID) {
	c.mu.Lock()
	c.pending = true
	c.mu.Unlock()
	c.owner.Go(func() {
		link, err := c.env.reach(ctx, pod)
		c.mu.Lock()
		c.pending, c.failure = false, err
		if err == nil {
			link.owner = c.owner
			c.link = link
		}
		c.mu.Unlock()
		c.owner.Wake()
	})
}

// Close lets go of the launcher, which is not touched. No attempt to connect may be under
// way.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
}
