package connection

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/launcherclient"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
)

// Link is a connection to one virt-launcher, and what is reached through it.
type Link struct {
	// Pod is the launcher's.
	Pod types.UID
	// Peer is the launcher's process.
	Peer *podpath.Peer
	// SELinux is what the launcher is known by.
	SELinux nodeselinux.Launcher

	client *launcherclient.Client
	// private is the pod's folder of sockets.
	private *podpath.Dir
	belongs func(peer *podpath.Peer, pod types.UID) error
	owner   Owner
	// stopping is the goroutine's that calls Stop and Kill.
	stopping *Stopping
}

// Stopping is what virt-launcher was told of QEMU's end.
type Stopping struct {
	// Grace is the grace period in seconds, Since when that was.
	Grace int64
	Since time.Time
}

// Done is closed when virt-launcher is gone.
func (l *Link) Done() <-chan struct{} { return l.client.Done() }

// Changed has a message when what virt-launcher has said is not true any more.
func (l *Link) Changed() <-chan struct{} { return l.client.Changed() }

func (l *Link) ended() bool {
	select {
	case <-l.client.Done():
		return true
	default:
		return false
	}
}

func (l *Link) close() {
	l.client.Close()
	l.Peer.Close()
	l.private.Close()
}

// Prepare has virt-launcher make and inspect disk images.
func (l *Link) Prepare(ctx context.Context, images []launch.Image) (map[string]launch.PreparedImage, error) {
	return l.client.Prepare(ctx, images)
}

// Quiesce has virt-launcher hold the guest still.
func (l *Link) Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error) {
	return l.client.Quiesce(ctx, q)
}

// Held asks what holds the guest, or has held it last.
func (l *Link) Held(ctx context.Context, asked launch.Held) (launch.Hold, error) {
	return l.client.Held(ctx, asked)
}

// Release has the guest go on.
func (l *Link) Release(ctx context.Context, r launch.Release) (launch.Hold, error) {
	return l.client.Release(ctx, r)
}

// Start has virt-launcher start QEMU; one that runs already is left alone.
func (l *Link) Start(ctx context.Context, start launch.Start) error {
	_, err := l.client.Start(ctx, start)
	return err
}

// Stop has virt-launcher press the power button, and end QEMU by force when the grace period
// is over. It does not wait: the end is heard from virt-launcher's event, and a request that
// is lost is made good by Kill. failed is called with an error that says neither of both.
func (l *Link) Stop(ctx context.Context, stop launch.Stop, failed func(error)) {
	l.stopping = &Stopping{Grace: stop.GracePeriodSeconds, Since: l.owner.Now()}
	l.owner.Go(func() {
		if err := l.client.Stop(ctx, stop); err != nil && ctx.Err() == nil && l.client.Exit() == nil {
			failed(err)
		}
	})
}

// Told reports whether virt-launcher was told to end QEMU at once.
func (l *Link) Told() bool { return l.stopping != nil && l.stopping.Grace == 0 }

// Kill ends a virt-launcher that does not do as it is told, and QEMU with it.
func (l *Link) Kill() error {
	l.stopping = &Stopping{Since: l.owner.Now()}
	return l.Peer.Kill()
}

// Dial connects to one of the sockets in the pod.
func (l *Link) Dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	return l.private.Dial(ctx, socket)
}

// maxResolvConf bounds a file that the kubelet writes.
const maxResolvConf = 64 << 10

// ResolvConf is the pod's DNS settings.
func (l *Link) ResolvConf() (string, error) {
	text, err := l.Peer.Root.ReadFile("/etc/resolv.conf", maxResolvConf)
	if err != nil {
		return "", fmt.Errorf("reading the pod's DNS settings: %w", err)
	}
	return string(text), nil
}

// Listen makes a socket in the pod, which belongs to a user.
func (l *Link) Listen(ctx context.Context, socket string, user int) (*podpath.Listener, error) {
	return l.private.Listen(ctx, socket, user)
}

// Admit checks that it is a process of the pod that has connected to such a socket.
func (l *Link) Admit(conn *net.UnixConn) error {
	peer, err := podpath.OpenPeer(conn)
	if err != nil {
		return err
	}
	defer peer.Close()
	return l.belongs(peer, l.Pod)
}

// Monitor connects to QEMU's monitor.
func (l *Link) Monitor(ctx context.Context) (*net.UnixConn, error) {
	conn, err := l.private.Dial(ctx, layout.QMPSocket)
	if err != nil {
		return nil, fmt.Errorf("connecting to QEMU's monitor: %w", err)
	}
	return conn, nil
}
