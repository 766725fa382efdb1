// Package status reports which parts of a cluster run. It must ask no component, only look at the processes: so
// it is right even after the supervisor was killed.
package status

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/nodeinit"
	"drydock.dev/local/internal/proc"
)

// Component is a program of the cluster; PID is 0 if it does not run.
type Component struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// Node is a node of the cluster.
type Node struct {
	Name string `json:"name"`
	IP   string `json:"ip"`
	// The node dies with Init.
	Init       int         `json:"init"`
	Ready      bool        `json:"ready"`
	Components []Component `json:"components"`
}

// Cluster is the status of a whole cluster.
type Cluster struct {
	Name         string      `json:"name"`
	Dir          string      `json:"dir"`
	Kubeconfig   string      `json:"kubeconfig"`
	APIServer    string      `json:"apiServer"`
	Supervisor   int         `json:"supervisor"`
	ControlPlane []Component `json:"controlPlane"`
	Nodes        []Node      `json:"nodes"`
}

var (
	controlNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "drydock-storage"}
	nodeNames    = []string{"containerd", "kubelet", "kube-proxy", "drydock-policies", "drydock-csi-node"}
)

// Read reads the status of a cluster.
func Read(ctx context.Context, c layout.Cluster, tree cgroup.Tree) (Cluster, error) {
	control, err := tree.Procs(c.ControlCgroup())
	if err != nil {
		return Cluster{}, err
	}
	st := Cluster{
		Name: c.Name, Dir: c.Dir, Kubeconfig: c.Kubeconfig(), APIServer: c.APIServer(),
		ControlPlane: components(controlNames, control),
		Supervisor:   components([]string{"supervisor"}, control)[0].PID,
	}
	ready := readyNodes(ctx, c)
	for _, name := range c.Nodes {
		pids, err := tree.Procs(c.NodeSystemCgroup(name))
		if err != nil {
			return Cluster{}, err
		}
		n := Node{Name: name, IP: c.NodeIP(name).String(), Components: components(nodeNames, pids)}
		var runs bool
		n.Init, runs = nodeinit.Find(pids, c, name)
		n.Ready = runs && ready[name]
		st.Nodes = append(st.Nodes, n)
	}
	return st, nil
}

func components(names []string, pids []int) []Component {
	found := make([]Component, len(names))
	for i, name := range names {
		found[i].Name = name
		found[i].PID, _ = proc.FindWhere(pids, func(pid int) bool { return proc.Program(proc.Argv(pid)) == name })
	}
	return found
}

// readyNodes asks the API server. No node is ready without one.
func readyNodes(ctx context.Context, c layout.Cluster) map[string]bool {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil
	}
	config.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	ready := map[string]bool{}
	for _, n := range list.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				ready[n.Name] = condition.Status == corev1.ConditionTrue
			}
		}
	}
	return ready
}

// Running reports whether any part of the cluster runs.
func (c Cluster) Running() bool {
	alive := func(p Component) bool { return p.PID != 0 }
	return c.Supervisor != 0 || slices.ContainsFunc(c.ControlPlane, alive) ||
		slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Init != 0 })
}

// Missing lists the parts that don't run or aren't ready.
func (c Cluster) Missing() []string {
	var missing []string
	for _, p := range c.ControlPlane {
		if p.PID == 0 {
			missing = append(missing, p.Name)
		}
	}
	for _, n := range c.Nodes {
		switch {
		case n.Init == 0:
			missing = append(missing, n.Name)
			continue
		case !n.Ready:
			missing = append(missing, n.Name+" is not ready")
		}
		for _, p := range n.Components {
			if p.PID == 0 {
				missing = append(missing, p.Name+" of "+n.Name)
			}
		}
	}
	return missing
}

// Text formats the status as a table.
func (c Cluster) Text() string {
	var b strings.Builder
	if !c.Running() {
		fmt.Fprintf(&b, "Cluster %s in %s is down. Start it with: drydock up\n", c.Name, c.Dir)
		return b.String()
	}
	fmt.Fprintf(&b, "Cluster %s in %s, API server %s\nKubeconfig: %s\n\n", c.Name, c.Dir, c.APIServer, c.Kubeconfig)
	row := func(where, what, state string, pid int) {
		number := ""
		if pid != 0 {
			number = strconv.Itoa(pid)
		}
		fmt.Fprintf(&b, "%-14s %-24s %-9s %s\n", where, what, state, number)
	}
	row("WHERE", "WHAT", "STATE", 0)
	row("control plane", "supervisor", state(c.Supervisor), c.Supervisor)
	for _, p := range c.ControlPlane {
		row("control plane", p.Name, state(p.PID), p.PID)
	}
	for _, n := range c.Nodes {
		ready := "NotReady"
		if n.Ready {
			ready = "Ready"
		}
		row(n.Name, "node "+n.IP, ready, n.Init)
		for _, p := range n.Components {
			row(n.Name, p.Name, state(p.PID), p.PID)
		}
	}
	return b.String()
}

func state(pid int) string {
	if pid == 0 {
		return "stopped"
	}
	return "running"
}
