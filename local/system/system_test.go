//go:build system

// Package system proves the embedded cluster as a whole: real processes, namespaces and pods. It drives the built
// program as a user does, and must not reach into a running cluster in any other way.
package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
)

// TestClusterLives is the story of one cluster; each chapter needs the earlier ones.
func TestClusterLives(t *testing.T) {
	c := newCluster(t, "sys")
	disk := hostDisk(t)
	c.up("--nodes=2")
	c.drydock("image", "load", agentImage(t, "drydock.test/agent:1"))
	c.drydock("kubectl", "apply", "-f", "pods.yaml")
	c.eventually("the first pods work", c.works)

	chapters := []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"what the host unmounts is gone on the nodes", func(t *testing.T, c *cluster) { hostUnmounts(t, c, disk) }},
		{"a pod reaches a pod on the other node", podToPod},
		{"a pod resolves names and reaches services", namesAndServices},
		{"a pod reads an image volume", imageVolume},
		{"the API server reaches pods", apiServerToPod},
		{"a privileged pod sees its node", privilegedPod},
		{"kubectl forwards a port and ends when asked", portForward},
		{"a pod grows in place", resize},
		{"bare pods start and end fast", podCosts},
		{"pods write to volumes of every kind", volumesServe},
		{"a snapshot is restored and a volume cloned", volumesAreCopied},
		{"volumes grow", volumesGrow},
		{"pods on a lan reach each other, and no other lan", lansServe},
		{"a VLAN of a lan is real, or refused", vlansServe},
		{"network policies hold", policiesHold},
		{"up again changes nothing", upAgain},
		{"each component is killed and heals, pods stay", killComponents},
		{"renewed certificates are taken without a restart", certificatesRenewed},
		{"authorities that a wrong clock made are replaced, pods stay", authoritiesReplaced},
		{"the supervisor is killed and the next takes over", killSupervisor},
		{"a node dies and comes back", nodeDies},
		{"all processes are killed and up brings all back", killEverything},
		{"down leaves nothing and up finds everything again", downAndUp},
		{"volumes go with their claims", volumesGo},
	}
	for _, chapter := range chapters {
		ok := t.Run(chapter.name, func(t *testing.T) {
			began := time.Now()
			chapter.run(t, &cluster{t: t, Cluster: c.Cluster, program: c.program})
			t.Logf("took %.1fs", time.Since(began).Seconds())
		})
		if !ok {
			t.Fatalf("the story ends here: %s", chapter.name)
		}
	}
	c.interruptedDown()
	assertNothingLeft(t, c.Cluster)
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("down --purge left the data folder: %v", err)
	}
}

// interruptedDown interrupts `down --purge` while it waits for a component that does not end.
func (c *cluster) interruptedDown() {
	c.t.Helper()
	pids := c.pids()
	if err := unix.Kill(pids["etcd"], unix.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	kubelet, err := unix.PidfdOpen(pids["node1/kubelet"], 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = unix.Close(kubelet) }() // only polled
	cmd := exec.Command(c.program, "--dir="+c.Dir, "--name="+c.Name, "down", "--purge")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("down has begun", func() error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(kubelet), Events: unix.POLLIN}}, 0)
		if err == nil && n == 0 {
			err = errors.New("the first node's kubelet is still there")
		}
		return err
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		c.t.Error(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "going on by force") {
		c.t.Errorf("an interrupted down ends with %v and says:\n%s", err, said.String())
	}
}

// TestInterruptedUpLeavesNothing kills up and its supervisor at several moments; in `make test` only when most could be
// left.
func TestInterruptedUpLeavesNothing(t *testing.T) {
	moments := []string{"certificates and network", "nodes are starting", "kube-apiserver serves", "node1 is ready"}
	if testing.Short() {
		moments = moments[len(moments)-1:]
	}
	for _, after := range moments {
		t.Run("after "+after, func(t *testing.T) {
			c := newCluster(t, "cut")
			cmd := exec.Command(c.program, "--dir="+c.Dir, "--name="+c.Name, "up")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			seen := ""
			for buf := make([]byte, 4096); !strings.Contains(seen, after); {
				n, err := out.Read(buf)
				if err != nil {
					t.Fatalf("up ended early: %v: %s", err, seen)
				}
				seen += string(buf[:n])
			}
			c.kill(cmd.Process.Pid)
			_ = cmd.Wait() // it was killed
			c.kill(c.pids()["supervisor"])
			if c.Cluster, _, err = layout.Load(c.Name, c.Dir); err != nil {
				t.Fatal(err)
			}
			c.drydock("down", "--purge")
			assertNothingLeft(t, c.Cluster)
		})
	}
}

// TestCommandsSayWhatIsWrong needs no cluster.
func TestCommandsSayWhatIsWrong(t *testing.T) {
	c := newCluster(t, "none")
	for command, want := range map[string]string{
		"status":                                "there is none in " + c.Dir + "; make one with: drydock up",
		"kubectl get pods":                      "there is none in " + c.Dir,
		"image load x.tar":                      "there is none in " + c.Dir,
		"node kill node1":                       "there is none in " + c.Dir,
		"status -o yaml":                        `no output format "yaml", only json`,
		"up --nodes 64":                         "64 is not between 1 and 63",
		"up --name Not_Valid":                   `the cluster name "Not_Valid"`,
		"up --dir /" + strings.Repeat("d", 100): "at most 80 bytes",
		"frobnicate":                            `unknown command "frobnicate"`,
	} {
		if _, err := c.try(strings.Fields(command)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("drydock %s says %v, want %q", command, err, want)
		}
	}
	if out, err := c.try("down"); err != nil || !strings.Contains(out, "There is no cluster none") {
		t.Errorf("down without a cluster: %v: %s", err, out)
	}
	assertNothingLeft(t, c.Cluster)
	if err := os.Remove(c.Dir); err != nil {
		t.Errorf("the refused commands left something in the folder: %v", err)
	}
}

// TestUpLeavesAFolderInUseAlone gives `up` a source checkout, by a relative path, by its name and by a symbolic link,
// and the root folder. Each must be refused.
func TestUpLeavesAFolderInUseAlone(t *testing.T) {
	c := newCluster(t, "inuse")
	checkout := filepath.Join(c.Dir, "checkout")
	files := []string{"config/crd.yaml", "images/main.go", "nodes/list", "go.mod"}
	for _, file := range files {
		if err := layout.WriteFile(filepath.Join(checkout, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("checkout", filepath.Join(c.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		".": "is not empty and holds no cluster", checkout: "is not empty and holds no cluster",
		"../link": "is not empty and holds no cluster", "/": "it can't be /",
	} {
		for _, command := range [][]string{{"up"}, {"down", "--purge"}} {
			cmd := exec.Command(c.program, append([]string{"--name=inuse", "--dir=" + dir}, command...)...)
			cmd.Dir = checkout
			out, err := cmd.CombinedOutput()
			if command[0] == "up" && (err == nil || !strings.Contains(string(out), want)) {
				t.Errorf("up in %s: %v: %q, want %q", dir, err, out, want)
			}
		}
	}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(checkout, file)); err != nil {
			t.Errorf("a file of the checkout is gone: %v", err)
		}
	}
	assertNothingLeft(t, layout.Cluster{Name: "inuse", Dir: checkout})
	if err := os.RemoveAll(c.Dir); err != nil {
		t.Error(err)
	}
}

func agentImage(t *testing.T, ref string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "agent")
	build := exec.Command("go", "build", "-o", binary, "./agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v: %s", err, out)
	}
	archive := filepath.Join(t.TempDir(), "agent.tar")
	if err := image.FromBinary(ref, binary, archive); err != nil {
		t.Fatal(err)
	}
	return archive
}

func webPods(c *cluster) map[string]corev1.Pod {
	c.t.Helper()
	list, err := c.client().CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		c.t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Spec.NodeName] = p
	}
	return pods
}

func podToPod(t *testing.T, c *cluster) {
	for _, node := range c.Nodes {
		pod := webPods(c)[node]
		if got := c.mustExec("asker", "agent", "get", "http://"+pod.Status.PodIP+":8080/"); got != pod.Name {
			t.Errorf("the pod on %s answered %q, want %q", node, got, pod.Name)
		}
	}
}

func namesAndServices(t *testing.T, c *cluster) {
	if got := c.mustExec("asker", "agent", "resolve", "kubernetes.default"); got != c.KubernetesIP().String() {
		t.Errorf("kubernetes.default resolved to %q", got)
	}
	answered := map[string]bool{}
	c.eventually("the service spreads over both pods", func() error {
		answered[c.mustExec("asker", "agent", "get", "http://web/")] = true
		if len(answered) < 2 {
			return fmt.Errorf("only %v answered", answered)
		}
		return nil
	})
}

func imageVolume(t *testing.T, c *cluster) {
	if got := c.mustExec("asker", "agent", "cat", "/other/pause"); !strings.HasPrefix(got, "\x7fELF") {
		t.Errorf("the image volume does not hold the other image's program, but %.20q", got)
	}
}

func apiServerToPod(t *testing.T, c *cluster) {
	for node, pod := range webPods(c) {
		if got := strings.TrimSpace(c.drydock("kubectl", "get", "--raw", "/api/v1/namespaces/default/pods/"+pod.Name+":8080/proxy/")); got != pod.Name {
			t.Errorf("through the API server the pod on %s answered %q", node, got)
		}
		if got := c.drydock("kubectl", "logs", pod.Name); !strings.Contains(got, "agent serves") {
			t.Errorf("the log of the pod on %s is %q", node, got)
		}
	}
}

func portForward(t *testing.T, c *cluster) {
	cmd := exec.Command(c.program, "--dir="+c.Dir, "--name="+c.Name, "kubectl", "port-forward", "pod/asker", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("port-forward said nothing: %v", err)
	}
	address := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0]
	resp, err := http.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || strings.TrimSpace(string(body)) != "asker" {
		t.Errorf("through the forwarded port came %q, %v", body, err)
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Logf("port-forward ended: %v", err)
	case <-time.After(patience):
		t.Errorf("port-forward does not end when it is asked to")
		_ = cmd.Process.Kill() // the test has failed already
	}
}

// The node shares the pod's cgroup with the test.
func resize(t *testing.T, c *cluster) {
	const patch = `{"spec":{"containers":[{"name":"agent","resources":{"limits":{"memory":"96Mi"},"requests":{"memory":"96Mi"}}}]}}`
	before := c.mustExec("sized", "agent", "cat", "/proc/self/cgroup")
	c.drydock("kubectl", "patch", "pod", "sized", "--subresource=resize", "-p", patch)
	c.eventually("the new limit is in the status", func() error {
		pod, err := c.client().CoreV1().Pods("default").Get(context.Background(), "sized", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := pod.Status.ContainerStatuses[0]
		if s.Resources == nil || s.Resources.Limits.Memory().String() != "96Mi" || s.RestartCount != 0 {
			return fmt.Errorf("resources %+v, %d restarts, conditions %+v", s.Resources, s.RestartCount, pod.Status.Conditions)
		}
		return nil
	})
	if after := c.mustExec("sized", "agent", "cat", "/proc/self/cgroup"); after != before {
		t.Errorf("the container moved from cgroup %s to %s", before, after)
	}
}

func privilegedPod(t *testing.T, c *cluster) {
	if got := c.mustExec("mounter", "agent", "cat", "/proc/1/cmdline"); !strings.Contains(got, "node-init") {
		t.Errorf("process 1 of a pod with hostPID is %q, not the node's init", got)
	}
	c.mustExec("mounter", "agent", "mount", "/var/lib/kubelet/test-mount")
	c.mustExec("mounter", "agent", "write", "/var/lib/kubelet/test-mount/file", "seen")
	if got := c.mustExec("mounter", "seer", "cat", "/var/lib/kubelet/test-mount/file"); got != "seen" {
		t.Errorf("what one pod mounts, another reads as %q", got)
	}
}

// podCosts prints the cost of pods. Its limit only catches the loss of an order of magnitude, compared with a pod's own
// start, which other load slows down as much; the benchmark has the figures.
func podCosts(t *testing.T, c *cluster) {
	client := c.client()
	var running, ended, gone []time.Duration
	for i := range 5 {
		stays := startPod(t, client, fmt.Sprintf("stays-%d", i), "wait")
		running = append(running, stays.until(corev1.PodRunning))
		gone = append(gone, stays.untilGone())
		ends := startPod(t, client, fmt.Sprintf("ends-%d", i), "cat", "/dev/null")
		ended = append(ended, ends.until(corev1.PodSucceeded))
		ends.untilGone()
	}
	median := func(took []time.Duration) time.Duration { return slices.Sorted(slices.Values(took))[len(took)/2] }
	for what, took := range map[string][]time.Duration{
		"from creation to Running": running, "from creation to the end of one that ends at once": ended, "from deletion to gone": gone,
	} {
		t.Logf("a bare pod %s: median %s, all %s", what, median(took), took)
		if median(took) > 10*median(running) {
			t.Errorf("a bare pod %s takes %s, and only %s from creation to Running", what, median(took), median(running))
		}
	}
}

type watched struct {
	t      *testing.T
	client kubernetes.Interface
	name   string
	began  time.Time
	events watch.Interface
}

func startPod(t *testing.T, client kubernetes.Interface, name string, args ...string) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			RestartPolicy:                 corev1.RestartPolicyNever,
			Containers:                    []corev1.Container{{Name: "agent", Image: "drydock.test/agent:1", ImagePullPolicy: corev1.PullNever, Args: args}},
		},
	}
	events, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	w := &watched{t: t, client: client, name: name, began: time.Now(), events: events}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watched) until(phase corev1.PodPhase) time.Duration {
	w.t.Helper()
	for event := range w.events.ResultChan() {
		if p, ok := event.Object.(*corev1.Pod); ok && p.Status.Phase == phase {
			return time.Since(w.began).Round(time.Millisecond)
		}
	}
	w.t.Fatalf("pod %s did not get to %s in time", w.name, phase)
	return 0
}

func (w *watched) untilGone() time.Duration {
	w.t.Helper()
	began := time.Now()
	if err := w.client.CoreV1().Pods("default").Delete(context.Background(), w.name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	for event := range w.events.ResultChan() {
		if event.Type == watch.Deleted {
			return time.Since(began).Round(time.Millisecond)
		}
	}
	w.t.Fatalf("pod %s did not go in time", w.name)
	return 0
}

func upAgain(t *testing.T, c *cluster) {
	before := c.pids()
	c.up("--nodes=2")
	if after := c.pids(); !maps.Equal(before, after) {
		t.Errorf("up changed the processes from %v to %v", before, after)
	}
}

func killComponents(t *testing.T, c *cluster) {
	before, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(c.pids()))
	for _, name := range names {
		if name == "supervisor" {
			continue
		}
		old := c.pids()[name]
		began := time.Now()
		c.kill(old)
		c.eventually(name+" heals", func() error {
			if pid := c.pids()[name]; pid == 0 || pid == old {
				return fmt.Errorf("%s was process %d and is %d", name, old, pid)
			}
			return c.works()
		})
		t.Logf("%s healed after %.1fs", name, time.Since(began).Seconds())
	}
	c.assertSameContainers(before)
	c.eventually("the volumes kept their data", c.volumesHold)
}

// assertSameContainers fails if a container was restarted.
func (c *cluster) assertSameContainers(before map[string]string) {
	c.t.Helper()
	var after map[string]string
	c.eventually("all containers run", func() (err error) {
		after, err = c.containers()
		return err
	})
	if !maps.Equal(before, after) {
		c.t.Errorf("containers changed from %v to %v", before, after)
	}
}

func killSupervisor(t *testing.T, c *cluster) {
	before := c.pids()
	containers, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	c.kill(before["supervisor"])
	c.up("--nodes=2")
	after := c.pids()
	if after["supervisor"] == before["supervisor"] || after["supervisor"] == 0 {
		t.Errorf("the supervisor was process %d and is %d", before["supervisor"], after["supervisor"])
	}
	delete(before, "supervisor")
	delete(after, "supervisor")
	if !maps.Equal(before, after) {
		t.Errorf("the new supervisor did not take over: processes changed from %v to %v", before, after)
	}
	c.assertSameContainers(containers)
	// It must watch the processes that it took over.
	c.kill(after["kube-scheduler"])
	c.eventually("an adopted component heals", func() error {
		if pid := c.pids()["kube-scheduler"]; pid == 0 || pid == after["kube-scheduler"] {
			return fmt.Errorf("kube-scheduler is process %d", pid)
		}
		return nil
	})
}

func nodeDies(t *testing.T, c *cluster) {
	before, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	c.drydock("node", "kill", "node2")
	if st := c.status(); st.Nodes[1].Init != 0 || st.Nodes[1].Components[0].PID != 0 {
		t.Errorf("node2 is dead and its status is %+v", st.Nodes[1])
	}
	c.drydock("node", "start", "node2")
	c.eventually("the containers of the node are new and the others are not", func() error {
		return c.renewed(before, "node2")
	})
	c.eventually("the pods of the node work", c.works)
	c.eventually("the node is on its lans again", c.lansWork)
	c.eventually("the volumes kept their data", c.volumesHold)
}

// A container must be restarted if and only if its node died.
func (c *cluster) renewed(before map[string]string, died ...string) error {
	after, err := c.containers()
	if err != nil {
		return err
	}
	pods, err := c.client().CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, s := range pod.Status.ContainerStatuses {
			key := pod.Name + "/" + s.Name
			if renewed := before[key] != after[key]; renewed != slices.Contains(died, pod.Spec.NodeName) {
				return fmt.Errorf("container %s on %s was %q and is %q", key, pod.Spec.NodeName, before[key], after[key])
			}
		}
	}
	return nil
}

func killEverything(t *testing.T, c *cluster) {
	facts, err := host.Gather()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Open(facts.CgroupV2)
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := tree.Procs(c.Cgroup())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // the death of a node's init kills others with it
	}
	c.comesBack(before)
}

func downAndUp(t *testing.T, c *cluster) {
	before, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	c.drydock("down")
	assertNothingLeft(t, c.Cluster)
	if out := c.drydock("image", "load", agentImage(t, "drydock.test/later:1")); !strings.Contains(out, "Kept for the next up") {
		t.Errorf("loading an image into a cluster that is down says: %s", out)
	}
	c.comesBack(before)
	c.drydock("kubectl", "run", "later", "--image=drydock.test/later:1", "--image-pull-policy=Never", "--", "wait")
	c.drydock("kubectl", "wait", "--for=condition=Ready", "pod/later", "--timeout="+patience.String())
}

func (c *cluster) comesBack(before map[string]string) {
	c.t.Helper()
	c.up("--nodes=2")
	c.eventually("all containers are new", func() error { return c.renewed(before, "node1", "node2") })
	c.eventually("the pods work", c.works)
	c.eventually("the lans work", c.lansWork)
	c.eventually("the volumes kept their data", c.volumesHold)
}
