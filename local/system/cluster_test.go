//go:build system

package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/status"
)

// cluster is a cluster of the test's own; the drydock program drives it as a user would.
type cluster struct {
	t *testing.T
	layout.Cluster
	program string
}

func newCluster(t *testing.T, name string) *cluster {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "drydock"))
	if err != nil {
		t.Fatal(err)
	}
	endLeftovers(t, program, name)
	// Not t.TempDir: its path is too long for a socket, and a failed test's logs must stay.
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, Cluster: layout.Cluster{Name: name, Dir: dir}, program: program}
	holdLock(t, dir+lockSuffix)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("the cluster's logs are kept in %s", dir)
		if out, err := c.try("down"); err != nil {
			t.Logf("taking the cluster down: %v: %s", err, out)
		}
	})
	return c
}

// lockSuffix names the file beside a cluster's folder that its test has locked.
const lockSuffix = ".lock"

// The file gets its name when it is locked, so that another run does not take it for a leftover.
func holdLock(t *testing.T, path string) {
	t.Helper()
	lock, err := os.Create(path + ".new")
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	if err == nil {
		err = os.Rename(lock.Name(), path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(path), lock.Close()); err != nil {
			t.Error(err)
		}
	})
}

// endLeftovers takes down the clusters of killed runs, whose locks are free, with their data.
func endLeftovers(t *testing.T, program, name string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), name+"[0-9]*"+lockSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if err := endLeftover(t.Context(), program, name, path); err != nil {
			t.Errorf("taking down what a run that was killed has left: %v", err)
		}
	}
}

func endLeftover(ctx context.Context, program, name, path string) error {
	lock, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its test has just ended
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil // its test runs
	} else if err != nil {
		return err
	}
	dir := strings.TrimSuffix(path, lockSuffix)
	if out, err := exec.CommandContext(ctx, program, "--dir="+dir, "--name="+name, "down", "--purge").CombinedOutput(); err != nil {
		return fmt.Errorf("drydock down in %s: %w: %s", dir, err, out)
	}
	return errors.Join(os.RemoveAll(dir), os.RemoveAll(path))
}

// try runs drydock and returns its standard output. Its standard error, such as client-go's messages about an API
// server that is being killed, appears only in an error.
func (c *cluster) try(args ...string) (string, error) { return c.within(2*patience, args...) }

// within is try with a limit.
func (c *cluster) within(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append([]string{"--dir=" + c.Dir, "--name=" + c.Name}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), err
}

// drydock runs drydock, which must succeed.
func (c *cluster) drydock(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("drydock %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) up(args ...string) {
	c.t.Helper()
	out := c.drydock(append([]string{"up"}, args...)...)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Cluster ") {
			c.t.Log(strings.TrimSpace(line))
		}
	}
	loaded, found, err := layout.Load(c.Name, c.Dir)
	if err != nil || !found {
		c.t.Fatalf("reading the cluster's record: found %t, %v", found, err)
	}
	c.Cluster = loaded
}

func (c *cluster) client() kubernetes.Interface {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// exec runs the agent in a pod.
func (c *cluster) exec(pod, container string, args ...string) (string, error) {
	all := append([]string{"kubectl", "exec", pod, "-c", container, "--", "/agent"}, args...)
	// It may hang when a component is killed meanwhile, and is then repeated.
	out, err := c.within(patience/4, all...)
	return strings.TrimSpace(out), err
}

func (c *cluster) mustExec(pod, container string, args ...string) string {
	c.t.Helper()
	var out string
	c.eventually(fmt.Sprintf("%v in %s", args, pod), func() (err error) {
		if out, err = c.exec(pod, container, args...); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return out
}

func (c *cluster) status() status.Cluster {
	c.t.Helper()
	var st status.Cluster
	if err := json.Unmarshal([]byte(c.drydock("status", "-o", "json")), &st); err != nil {
		c.t.Fatal(err)
	}
	return st
}

// pids maps every component, named as "node1/kubelet" or "kube-apiserver", to its process.
func (c *cluster) pids() map[string]int {
	c.t.Helper()
	st := c.status()
	all := map[string]int{"supervisor": st.Supervisor}
	for _, p := range st.ControlPlane {
		all[p.Name] = p.PID
	}
	for _, n := range st.Nodes {
		for _, p := range n.Components {
			all[n.Name+"/"+p.Name] = p.PID
		}
	}
	return all
}

func (c *cluster) kill(pid int) {
	c.t.Helper()
	if pid <= 1 {
		c.t.Fatalf("asked to kill process %d", pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		c.t.Fatalf("killing process %d: %v", pid, err)
	}
}

const patience = 3 * time.Minute

func (c *cluster) eventually(what string, look func() error) {
	c.t.Helper()
	deadline, tick := time.Now().Add(patience), time.Tick(50*time.Millisecond)
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		<-tick
	}
}

func (c *cluster) containers() (map[string]string, error) {
	pods, err := c.client().CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, pod := range pods.Items {
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				return nil, fmt.Errorf("container %s of pod %s does not run: %+v", s.Name, pod.Name, s.State)
			}
			all[pod.Name+"/"+s.Name] = s.ContainerID
		}
	}
	return all, nil
}

func (c *cluster) works() error {
	client := c.client()
	nodes, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s is not ready: %s", n.Name, condition.Message)
			}
		}
	}
	web, err := client.AppsV1().Deployments("default").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if web.Status.AvailableReplicas != *web.Spec.Replicas {
		return fmt.Errorf("deployment web has %d replicas available", web.Status.AvailableReplicas)
	}
	out, err := c.exec("asker", "agent", "get", "http://web.default.svc.cluster.local/")
	if err != nil || !strings.HasPrefix(out, "web-") {
		return fmt.Errorf("asking the service: %w: %q", err, out)
	}
	return nil
}
