// Package connection connects virt-handler to the virt-launcher of a pod: it waits for the launcher's socket,
// checks the peer, reads its hello, and records how its QEMU ended.
//
// A Link belongs to one pod and ends with it; a Connection has at most one. The package must not decide when to
// connect or to stop a guest (vmihandler does), and must not know the API server or QEMU's monitor.
//
//	         Connect               hello
//	none ─────────────> pending ──────────> up
//	  ^                    │ failed          │ the launcher has ended
//	  '────────────────────┴─────────────────'
//
// QEMU's exit is kept after its Link: virt-launcher reports the exit and ends.
package connection

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Env is shared by the connections of a node.
type Env struct {
	Pods    string // the kubelet's folder
	Watcher *podpath.Watcher
	SELinux *nodeselinux.Node
	// Belongs returns an error for a process that is not in the pod.
	Belongs func(peer *podpath.Peer, pod types.UID) error
}

// Owner has the callbacks to a Connection's owner.
type Owner struct {
	// Go runs a goroutine that the owner waits for.
	Go   func(func())
	Wake func()
	Now  func() time.Time
}

// Connection is the connection to the virt-launcher of a VMI's pod. One goroutine calls Observe and Close.
type Connection struct {
	env   *Env
	owner Owner

	mu      sync.Mutex
	link    *Link
	pending bool
	failure error
	// They say how QEMU ended, also after the link's end.
	exit     *launch.Exit
	exitedIn types.UID
	exitedAt time.Time
}

// New returns a Connection without a link.
func New(env *Env, owner Owner) *Connection { return &Connection{env: env, owner: owner} }

// Facts describe the connection and the launcher.
type Facts struct {
	State    vmihandler.Link // none after QEMU's exit, even with a link
	Link     *Link
	Launcher launch.State
	Exit     *launch.Exit // nil if no exit is known
	ExitedIn types.UID    // the pod of that QEMU
	ExitedAt time.Time
	Failure  error     // of the last attempt, reported once
	Stopping *Stopping // the last request to end QEMU; nil for none
}

// Observe returns the facts, and drops a link that has ended.
func (c *Connection) Observe() Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := observation{pending: c.pending, failure: c.failure}
	c.failure = nil
	if c.link != nil {
		o.linked, o.ended, o.launcher, o.stopping = true, c.link.ended(), c.link.client.State(), c.link.stopping
		// The link's last message is read before its end is reported.
		if exit := o.launcher.Exit; exit != nil {
			if c.exit == nil || c.exitedIn != c.link.Pod { // virt-launcher may repeat its report
				c.exitedAt = exitTime(o.launcher.ExitedAt, c.owner.Now())
			}
			c.exit, c.exitedIn = exit, c.link.Pod
		}
	}
	o.exit, o.exitedAt = c.exit, c.exitedAt
	if o.linked && o.ended {
		c.link.close()
		c.link = nil
	}
	facts := decide(o)
	facts.Link, facts.ExitedIn = c.link, c.exitedIn
	return facts
}

// Connect waits for the launcher of a pod, and connects to it, in the background.
func (c *Connection) Connect(ctx context.Context, pod types.UID) {
	c.mu.Lock()
	c.pending = true
	c.mu.Unlock()
	c.owner.Go(func() {
		link, err := c.env.connectToLauncher(ctx, pod)
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

// Close closes the link; the launcher continues. No Connect may be in progress.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
}
