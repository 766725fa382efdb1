package connection

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

// helloTimeout bounds the wait for virt-launcher's hello.
const helloTimeout = 10 * time.Second

// privatePath leads from the kubelet's folder of a pod to the launcher's sockets.
var privatePath = podpath.EmptyDir(layout.PrivateVolume)

func (e *Env) connectToLauncher(ctx context.Context, pod types.UID) (*Link, error) {
	private := filepath.Join(string(pod), privatePath)
	if err := e.Watcher.Await(ctx, e.Pods, filepath.Join(private, layout.LauncherSocket)); err != nil {
		return nil, fmt.Errorf("waiting for virt-launcher: %w", err)
	}
	// The kubelet owns all names up to this folder; the guest may own those below it.
	dir, err := podpath.Open(filepath.Join(e.Pods, private))
	if err != nil {
		return nil, err
	}
	made := &Link{Pod: pod, private: dir, belongs: e.Belongs}
	if err := e.greet(ctx, made); err != nil {
		dir.Close()
		return nil, err
	}
	return made, nil
}

func (e *Env) greet(ctx context.Context, made *Link) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := made.private.Dial(ctx, layout.LauncherSocket)
	if err != nil {
		return fmt.Errorf("connecting to virt-launcher: %w", err)
	}
	made.Peer, err = podpath.OpenPeer(conn)
	if err != nil {
		_ = conn.Close() // nothing was sent
		return fmt.Errorf("identifying virt-launcher: %w", err)
	}
	err = e.Belongs(made.Peer, made.Pod)
	if err == nil {
		err = e.applySELinux(made)
	}
	if err == nil {
		made.client, err = launcherclient.New(ctx, conn)
	} else {
		_ = conn.Close() // nothing was sent
	}
	if err != nil {
		made.Peer.Close()
		return err
	}
	return nil
}

// applySELinux reads the launcher's SELinux context, and labels virt-handler's files in the pod for it.
func (e *Env) applySELinux(made *Link) error {
	if e.SELinux == nil {
		return nil
	}
	launcher, err := e.SELinux.Launcher(made.Peer)
	if err != nil {
		return err
	}
	made.SELinux = launcher
	made.Peer.Root.LabelNew(launcher.Files())
	made.private.LabelNew(launcher.Files())
	return nil
}
