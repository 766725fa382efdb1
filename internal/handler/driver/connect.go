package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/launcherclient"
	"drydock.dev/drydock/internal/handler/podpath"
)

// helloTimeout bounds the wait for a virt-launcher that accepts a connection
// and says nothing.
const helloTimeout = 10 * time.Second

// privatePath is the way from the kubelet's folder of a pod to the launcher's
// sockets.
var privatePath = filepath.Join("volumes", "kubernetes.io~empty-dir", layout.PrivateVolume)

// connect follows the launcher's socket in a goroutine of its own, so that the
// VMI's deletion is noticed meanwhile.
func (d *Driver) connect(ctx context.Context, pod types.UID) {
	d.mu.Lock()
	d.linking = true
	d.mu.Unlock()
	d.helpers.Go(func() {
		made, err := d.env.reach(ctx, pod)
		d.mu.Lock()
		d.linking, d.linkFailure = false, err
		if err == nil {
			d.link = made
			d.helpers.Go(func() { d.watchLink(ctx, made.client) })
		}
		d.mu.Unlock()
		d.poke()
	})
}

// watchLink wakes the driver when virt-launcher is gone.
func (d *Driver) watchLink(ctx context.Context, client *launcherclient.Client) {
	select {
	case <-ctx.Done():
	case <-client.Done():
		d.poke()
	}
}

// reach waits for the pod's launcher and connects to it.
func (e *Env) reach(ctx context.Context, pod types.UID) (*link, error) {
	private := filepath.Join(string(pod), privatePath)
	if err := e.Watcher.Await(ctx, e.Pods, filepath.Join(private, layout.LauncherSocket)); err != nil {
		return nil, fmt.Errorf("waiting for virt-launcher: %w", err)
	}
	// Up to this folder all names are the kubelet's; below it, the guest's.
	dir, err := podpath.Open(filepath.Join(e.Pods, private))
	if err != nil {
		return nil, err
	}
	made := &link{pod: pod, private: dir}
	if err := e.greet(ctx, made); err != nil {
		dir.Close()
		return nil, err
	}
	return made, nil
}

func (e *Env) greet(ctx context.Context, made *link) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := made.private.Dial(ctx, layout.LauncherSocket)
	if err != nil {
		return fmt.Errorf("connecting to virt-launcher: %w", err)
	}
	made.peer, err = podpath.OpenPeer(conn)
	if err != nil {
		_ = conn.Close() // nothing was said on it
		return fmt.Errorf("identifying virt-launcher: %w", err)
	}
	err = e.Belongs(made.peer, made.pod)
	if err == nil {
		err = e.learnSELinux(made)
	}
	if err == nil {
		made.client, err = launcherclient.New(ctx, conn)
	} else {
		_ = conn.Close() // nothing was said on it
	}
	if err != nil {
		made.peer.Close()
		return err
	}
	return nil
}

// learnSELinux asks what the launcher is known by, and has virt-handler's files in the
// pod labeled for it.
func (e *Env) learnSELinux(made *link) error {
	if e.SELinux == nil {
		return nil
	}
	launcher, err := e.SELinux.Launcher(made.peer)
	if err != nil {
		return err
	}
	made.selinux = launcher
	made.peer.Root.LabelNew(launcher.Files())
	return nil
}
