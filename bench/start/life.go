package start

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/layout"
)

type life struct {
	created                        time.Time
	pod, bound, scheduled, running time.Time // by watches
	launcher, qemu                 time.Time // start of the processes
	guest                          time.Time // its first line was read
	// cpu is QEMU's at the first line.
	cpu     time.Duration
	deleted time.Duration
}

func startVMI(ctx context.Context, c *cluster.Cluster, ns, name string) (*life, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	vmi := cluster.VMI(ns, name)
	l, pod, err := observeStart(ctx, c, vmi)
	if err != nil {
		return nil, err
	}
	if l.guest, err = readFirstLine(ctx, c, ns, name); err != nil {
		return nil, err
	}
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		at, err := proc.Started(p.PID)
		if err != nil {
			return nil, err
		}
		switch {
		case baseline.IsQEMU(p):
			l.qemu = at
			if l.cpu, err = proc.CPU(p.PID); err != nil {
				return nil, err
			}
		case p.Name() == "virt-launcher":
			l.launcher = at
		}
	}
	if l.qemu.IsZero() || l.launcher.IsZero() {
		return nil, fmt.Errorf("looking for the processes of pod %s: QEMU or virt-launcher is not there", pod.Name)
	}
	began := time.Now()
	err = c.DeleteAndAwait(ctx, vmi)
	l.deleted = time.Since(began)
	return l, err
}

func observeStart(ctx context.Context, c *cluster.Cluster, vmi *v1.VirtualMachineInstance) (*life, *corev1.Pod, error) {
	l := &life{}
	var mu sync.Mutex // for the two watches
	var pod *corev1.Pod
	ours := client.MatchingLabels{v1.AppLabel: layout.LauncherApp, v1.DeprecatedVirtualMachineNameLabel: vmi.Name}
	pods, err := c.Watch(ctx, &corev1.PodList{}, vmi.Namespace, ours, func(_ watch.EventType, o client.Object) bool {
		mu.Lock()
		defer mu.Unlock()
		pod = o.(*corev1.Pod)
		note(&l.pod)
		if pod.Spec.NodeName != "" {
			note(&l.bound)
		}
		return !l.bound.IsZero()
	})
	if err != nil {
		return nil, nil, err
	}
	vmis, err := c.Watch(ctx, &v1.VirtualMachineInstanceList{}, vmi.Namespace, cluster.Named(vmi.Name), func(_ watch.EventType, o client.Object) bool {
		mu.Lock()
		defer mu.Unlock()
		switch o.(*v1.VirtualMachineInstance).Status.Phase {
		case v1.Scheduled:
			note(&l.scheduled)
		case v1.Running:
			note(&l.running)
		}
		return !l.running.IsZero()
	})
	if err != nil {
		return nil, nil, err
	}
	l.created = time.Now()
	if err := c.Client.Create(ctx, vmi); err != nil {
		return nil, nil, fmt.Errorf("creating VMI %s: %w", vmi.Name, err)
	}
	for _, done := range []<-chan error{pods, vmis} {
		if err := <-done; err != nil {
			return nil, nil, err
		}
	}
	return l, pod, nil
}

func note(at *time.Time) {
	if at.IsZero() {
		*at = time.Now()
	}
}

func runs(_ watch.EventType, o client.Object) bool { return cluster.Running(o) }

func readFirstLine(ctx context.Context, c *cluster.Cluster, ns, name string) (time.Time, error) {
	conn, err := c.Console(ctx, ns, name)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	return awaitLine(ctx, conn)
}

// The context's end closes the connection.
func awaitLine(ctx context.Context, conn io.ReadCloser) (time.Time, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if strings.Contains(lines.Text(), firstLine) {
			return time.Now(), nil
		}
	}
	return time.Time{}, fmt.Errorf("waiting for the guest's first line: the console ended: %w", errors.Join(io.EOF, lines.Err(), ctx.Err()))
}
