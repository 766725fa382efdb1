// Package nodeinit is the first process of a node, in the node's namespaces: it mounts the node's file system,
// reaps orphans and keeps the node's components running. The node ends with it. It must not decide their
// configuration.
package nodeinit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/environ"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/proc"
	"drydock.dev/local/internal/render"
)

// GoFD is a pipe that signals that the node's network exists.
const GoFD = 3

// Command is the hidden subcommand that calls Run.
const Command = "node-init"

// Argv is the command line of a node's init, by which Find recognizes it.
func Argv(c layout.Cluster, node string) []string {
	return []string{"drydock", Command, c.Name, c.Dir, node}
}

// Find returns the PID of the node's init.
func Find(pids []int, c layout.Cluster, node string) (pid int, found bool) {
	return proc.FindWhere(pids, func(pid int) bool { return slices.Equal(proc.Argv(pid), Argv(c, node)) })
}

// Run runs a node until SIGTERM or SIGINT.
func Run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("starting a node: want name, folder and node, got %q", args)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	c, found, err := layout.Load(args[0], args[1])
	if err != nil {
		return err
	}
	node := args[2]
	if !found || c.Index(node) < 0 {
		return fmt.Errorf("starting a node: cluster %s in %s has no node %s", c.Name, c.Dir, node)
	}
	facts, err := host.Gather() // before /run is hidden, which has the list of name servers
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding our own program: %w", err)
	}
	n := &machine{cluster: c, name: node, facts: facts, self: self}
	if err := n.enter(); err != nil {
		return err
	}
	var reaper sync.WaitGroup
	reaper.Go(func() { reap(ctx) })
	defer reaper.Wait()
	return n.run(ctx)
}

type machine struct {
	cluster layout.Cluster
	name    string
	facts   host.Facts
	self    string
}

// The namespaces are copies of the host's so far.
func (n *machine) enter() error {
	tree, err := cgroup.Open(n.facts.CgroupV2)
	if err != nil {
		return err
	}
	system := n.cluster.NodeSystemCgroup(n.name)
	if err := errors.Join(tree.Join(system), tree.Prefer(system)); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(n.name)); err != nil {
		return fmt.Errorf("naming the node %s: %w", n.name, err)
	}
	if err := mountAll(n.cluster, n.name); err != nil {
		return err
	}
	// Other writers to the folder must not touch the originals.
	from := filepath.Dir(n.self)
	for _, plugin := range plugins {
		data, err := os.ReadFile(filepath.Join(from, plugin))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for the CNI plugin %s: it is not beside the drydock binary in %s: build it with: make build", plugin, from)
		}
		if err != nil {
			return fmt.Errorf("reading the CNI plugin %s: %w", plugin, err)
		}
		if err := layout.WriteFile(filepath.Join(render.CNIBin, plugin), data, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", host.BridgeFilter, host.BridgeFilter6} {
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("turning %s on in %s: %w", filepath.Base(file), n.name, err)
		}
	}
	if err := awaitNetwork(); err != nil {
		return err
	}
	return network.KeepOutOfLans()
}

// awaitNetwork blocks until the supervisor has connected the node and written to the pipe. If it dies, the pipe is
// closed without data, and the node ends.
func awaitNetwork() error {
	pipe := os.NewFile(GoFD, "go")
	defer pipe.Close()
	buf := make([]byte, 1)
	if n, err := pipe.Read(buf); n != 1 {
		return fmt.Errorf("waiting for the network: the supervisor has gone: %w", err)
	}
	return nil
}

func (n *machine) run(ctx context.Context) error {
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopParts()
	runner := &proc.Runner{Log: os.Stderr}
	var tasks []*proc.Task
	containerd := runner.Run(parts, n.containerd())
	tasks = append(tasks, containerd,
		runner.Run(parts, n.kubelet(containerd)),
		runner.Run(parts, n.proxy()),
		runner.Run(parts, n.policies()),
		runner.Run(parts, n.csi()))
	<-ctx.Done()
	// The kubelet stops first, so that it does not see its runtime die.
	slices.Reverse(tasks)
	for _, t := range tasks {
		t.Stop()
	}
	return nil
}

// environ returns the environment of the node's components. The supervisor made the init's in the same way.
func (n *machine) environ() []string { return environ.Of(n.cluster, os.Environ()) }

func (n *machine) containerd() proc.Component {
	bin := filepath.Join(filepath.Dir(n.self), "containerd")
	return proc.Component{
		Name: "containerd",
		Spec: proc.Spec{
			Path: bin,
			Argv: []string{"containerd", "--config=" + n.cluster.Node(n.name, "containerd.toml"), "--log-level=warn"},
			// containerd looks up its shim in PATH.
			Env: append(n.environ(), "PATH="+filepath.Dir(n.self)+":"+os.Getenv("PATH")),
			Log: n.cluster.NodeLog(n.name, "containerd"),
		},
		Ready: containerdReady,
	}
}

func (n *machine) kubelet(containerd *proc.Task) proc.Component {
	return proc.Component{
		Name: "kubelet",
		Spec: proc.Spec{
			Path: n.self,
			Argv: append([]string{"drydock", "kubelet"}, render.KubeletFlags(n.cluster, n.name)...),
			Env:  n.environ(),
			Log:  n.cluster.NodeLog(n.name, "kubelet"),
		},
		Needs: func(ctx context.Context) error {
			if err := containerd.Await(ctx); err != nil {
				return err
			}
			store := image.NewStore(n.cluster.Images())
			return errors.Join(store.Sync(ctx, render.ContainerdSocket), awaitAPIServer(ctx, n.cluster))
		},
		Ready: proc.HTTPReady("http://127.0.0.1:10248/healthz"),
	}
}

// CSINode is the CSI node service's program.
const CSINode = "drydock-csi-node"

func (n *machine) csi() proc.Component {
	return proc.Component{
		Name: CSINode,
		Spec: proc.Spec{
			Path: filepath.Join(filepath.Dir(n.self), CSINode),
			Argv: []string{CSINode, n.cluster.Name, n.cluster.Dir, n.name, render.KubeletRoot},
			Env:  n.environ(),
			Log:  n.cluster.NodeLog(n.name, CSINode),
		},
	}
}

// Policies is the program that enforces NetworkPolicies.
const Policies = "drydock-policies"

func (n *machine) policies() proc.Component {
	return proc.Component{
		Name: Policies,
		Spec: proc.Spec{
			Path: filepath.Join(filepath.Dir(n.self), Policies),
			Argv: []string{Policies, n.cluster.Name, n.cluster.Dir, n.name, render.PodBridge, render.PoliciesFolder},
			Env:  n.environ(),
			Log:  n.cluster.NodeLog(n.name, Policies),
		},
		Needs: func(ctx context.Context) error { return awaitAPIServer(ctx, n.cluster) },
	}
}

func (n *machine) proxy() proc.Component {
	return proc.Component{
		Name: "kube-proxy",
		Spec: proc.Spec{
			Path: n.self,
			Argv: []string{"drydock", "kube-proxy", "--config=" + n.cluster.Node(n.name, "kube-proxy.yaml")},
			Env:  n.environ(),
			Log:  n.cluster.NodeLog(n.name, "kube-proxy"),
		},
		Needs: func(ctx context.Context) error { return awaitAPIServer(ctx, n.cluster) },
		Ready: proc.HTTPReady("http://127.0.0.1:10256/healthz"),
	}
}
