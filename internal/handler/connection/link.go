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

// Link is a connection to one virt-launcher and its pod.
type Link struct {
	Pod     types.UID
	Peer    *podpath.Peer
	SELinux nodeselinux.Launcher

	client   *launcherclient.Client
	private  *podpath.Dir // the pod's folder of sockets
	belongs  func(peer *podpath.Peer, pod types.UID) error
	owner    Owner
	stopping *Stopping // only for the goroutine that calls Stop and Kill
}

// Stopping is a request to end QEMU.
type Stopping struct {
	Grace int64 // seconds
	Since time.Time
}

// Done is closed when virt-launcher has ended.
func (l *Link) Done() <-chan struct{} { return l.client.Done() }

// Changed receives when virt-launcher's state has changed.
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

// LogsConsole reports whether virt-launcher takes the output of the guest's serial console.
func (l *Link) LogsConsole() bool { return l.client.State().LogsConsole }

// Prepare makes virt-launcher create and inspect images.
func (l *Link) Prepare(ctx context.Context, images []launch.Image) (map[string]launch.PreparedImage, error) {
	return l.client.Prepare(ctx, images)
}

// Quiesce holds the guest still.
func (l *Link) Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error) {
	return l.client.Quiesce(ctx, q)
}

// Held returns the current or the last hold.
func (l *Link) Held(ctx context.Context, asked launch.Held) (launch.Hold, error) {
	return l.client.Held(ctx, asked)
}

// Release ends a hold.
func (l *Link) Release(ctx context.Context, r launch.Release) (launch.Hold, error) {
	return l.client.Release(ctx, r)
}

// Recovers reports whether virt-launcher supports Recover.
func (l *Link) Recovers() bool { return l.client.State().Recovers }

// Recover makes QEMU listen for the rest of an incoming post-copy, also while its monitor does not answer. listens is false
// if the connection is not broken.
func (l *Link) Recover(ctx context.Context) (listens bool, err error) { return l.client.Recover(ctx) }

// Start starts QEMU. A running one is left alone.
func (l *Link) Start(ctx context.Context, start launch.Start) error {
	_, err := l.client.Start(ctx, start)
	return err
}

// Stop asks virt-launcher to press the power button, and to kill QEMU after the grace period. It does not wait: an event
// reports QEMU's end. A lost request is no error, since Kill follows; failed gets other errors.
func (l *Link) Stop(ctx context.Context, stop launch.Stop, failed func(error)) {
	l.stopping = &Stopping{Grace: stop.GracePeriodSeconds, Since: l.owner.Now()}
	l.owner.Go(func() {
		if err := l.client.Stop(ctx, stop); err != nil && ctx.Err() == nil && l.client.Exit() == nil {
			failed(err)
		}
	})
}

// EndsAtOnce reports whether virt-launcher was asked to end QEMU without a grace period.
func (l *Link) EndsAtOnce() bool { return l.stopping != nil && l.stopping.Grace == 0 }

// Kill kills virt-launcher, and QEMU with it.
func (l *Link) Kill() error {
	l.stopping = &Stopping{Since: l.owner.Now()}
	return l.Peer.Kill()
}

// Dial connects to a socket in the pod.
func (l *Link) Dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	return l.private.Dial(ctx, socket)
}

const maxResolvConf = 64 << 10 // bytes

// ResolvConf returns the pod's resolv.conf.
func (l *Link) ResolvConf() (string, error) {
	text, err := l.Peer.Root.ReadFile("/etc/resolv.conf", maxResolvConf)
	if err != nil {
		return "", fmt.Errorf("reading the pod's DNS settings: %w", err)
	}
	return string(text), nil
}

// Listen makes a socket in the pod, owned by user.
func (l *Link) Listen(ctx context.Context, socket string, user int) (*podpath.Listener, error) {
	return l.private.Listen(ctx, socket, user)
}

// Admit returns an error if the peer is not a process of the pod.
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
