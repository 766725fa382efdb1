package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
)

type component struct {
	pod string
	pid int
}

func find(ctx context.Context, c *cluster.Cluster, name string) (component, error) {
	pods, err := c.Components(ctx, name)
	if err != nil {
		return component{}, err
	}
	processes, err := proc.OfPod(string(pods[0].UID))
	if err != nil {
		return component{}, err
	}
	for _, p := range processes {
		if p.Name() == "virt" {
			return component{pods[0].Name, p.PID}, nil
		}
	}
	return component{}, fmt.Errorf("looking for the process of %s: pod %s has none", name, pods[0].Name)
}

// anew replaces the pod of a component, so that its memory is that of a fresh start, and waits
// until the new one works.
func anew(ctx context.Context, c *cluster.Cluster, name string, atWork func(context.Context, *cluster.Cluster, component) error) (component, error) {
	before, err := find(ctx, c, name)
	if err != nil {
		return component{}, err
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = cluster.Namespace, before.pod
	if err := c.DeleteAndAwait(ctx, pod); err != nil {
		return component{}, err
	}
	var now component
	err = cluster.Eventually(ctx, name+" to be at work again", func(ctx context.Context) (bool, error) {
		if now, err = find(ctx, c, name); err != nil {
			return false, err
		}
		err := atWork(ctx, c, now)
		return err == nil, err
	})
	return now, err
}

// leads returns an error unless a virt-controller is the leader.
func leads(ctx context.Context, c *cluster.Cluster, controller component) error {
	page, err := c.Metrics(ctx, controller.pod)
	if err != nil {
		return err
	}
	if cluster.Sum(page, "leader_election_master_status", "") != 1 {
		return errors.New("it does not lead")
	}
	return nil
}

// admits returns an error unless virt-api answers the API server.
func admits(ctx context.Context, c *cluster.Cluster, _ component) error {
	return c.Client.Create(ctx, cluster.VMI(metav1.NamespaceDefault, "asked-for"), client.DryRunAll)
}

// kill kills virt-controller's process and waits until the kubelet has restarted it.
func kill(ctx context.Context, c *cluster.Cluster, which component) (component, error) {
	if err := syscall.Kill(which.pid, syscall.SIGKILL); err != nil {
		return component{}, fmt.Errorf("killing virt-controller: %w", err)
	}
	var now component
	err := cluster.Eventually(ctx, "virt-controller to be started again", func(ctx context.Context) (bool, error) {
		var err error
		now, err = find(ctx, c, "virt-controller")
		return err == nil && now.pid != which.pid, err
	})
	return now, err
}

// caughtUp waits until a virt-controller has reconciled n VMIs and its queue is empty.
func caughtUp(ctx context.Context, c *cluster.Cluster, which component, n int) error {
	return cluster.Eventually(ctx, "virt-controller to have looked at everything", func(ctx context.Context) (bool, error) {
		page, err := c.Metrics(ctx, which.pod)
		if err != nil {
			return false, err
		}
		const loop = `controller="virtualmachineinstance"`
		seen := cluster.Sum(page, "controller_runtime_reconcile_total", loop)
		left := cluster.Sum(page, "workqueue_depth", loop) + cluster.Sum(page, "controller_runtime_active_workers", loop)
		if seen < float64(n) || left > 0 {
			return false, fmt.Errorf("it has looked %g times, %g VMIs are left", seen, left)
		}
		return true, nil
	})
}

// profilerPort is the port of virt-controller's optional profiler.
const profilerPort = 6060

func openProfiler(ctx context.Context, c *cluster.Cluster) error {
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: "virt-controller"}
	if err := c.Client.Get(ctx, key, &d); err != nil {
		return fmt.Errorf("reading the deployment of virt-controller: %w", err)
	}
	flag := fmt.Sprintf("--pprof-addr=:%d", profilerPort)
	args := &d.Spec.Template.Spec.Containers[0].Args
	if slices.Contains(*args, flag) {
		return nil
	}
	*args = append(*args, flag)
	if err := c.Client.Update(ctx, &d); err != nil {
		return fmt.Errorf("opening virt-controller's profiler: %w", err)
	}
	return cluster.Eventually(ctx, "virt-controller with its profiler", func(ctx context.Context) (bool, error) {
		err := c.Client.Get(ctx, key, &d)
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 1 && d.Status.Replicas == 1 && d.Status.ReadyReplicas == 1, err
	})
}

func profile(ctx context.Context, c *cluster.Cluster, which component, kind, path string, d time.Duration) error {
	page, query := "debug/pprof/heap", map[string]string{"gc": "1"}
	if kind == "cpu" {
		page, query = "debug/pprof/profile", map[string]string{"seconds": strconv.Itoa(int(d.Seconds()))}
	}
	data, err := c.Page(ctx, which.pod, profilerPort, page, query)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}
