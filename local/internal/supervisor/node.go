package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/environ"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/nodeinit"
	"drydock.dev/local/internal/proc"
	"drydock.dev/local/internal/render"
)

const nodeGrace = 20 * time.Second

// A node that dies is not restarted: like a machine, it stays off until a user starts it.
type node struct {
	name    string
	process *proc.Process
	// started is zero for an adopted node, whose existing status counts.
	started time.Time
	dead    chan struct{}
}

func (n *node) alive() bool {
	select {
	case <-n.dead:
		return false
	default:
		return true
	}
}

// stop lets the node stop its components in order, and kills it after nodeGrace.
func (n *node) stop() {
	patience := time.NewTimer(nodeGrace)
	defer patience.Stop()
	n.signal(unix.SIGTERM)
	select {
	case <-n.dead:
	case <-patience.C:
		n.signal(unix.SIGKILL)
		<-n.dead
	}
}

// The caller waits for the node's death anyway.
func (n *node) signal(sig unix.Signal) {
	if err := n.process.Signal(sig); err != nil {
		fmt.Fprintf(os.Stderr, "stopping %s: %v\n", n.name, err)
	}
}

// The node may be an earlier supervisor's.
func (s *Supervisor) ensureNode(life context.Context, c layout.Cluster, name string) error {
	if n := s.node(name); n != nil && n.alive() {
		return s.attach(c, name, n.process.PID)
	}
	pids, err := s.tree.Procs(c.NodeSystemCgroup(name))
	if err != nil {
		return err
	}
	pid, runs := nodeinit.Find(pids, c, name)
	var p *proc.Process
	var started time.Time
	if runs {
		if p, err = proc.Open(pid); err != nil {
			return err
		}
		err = errors.Join(s.attach(c, name, p.PID), refresh(pids))
	} else {
		started = time.Now()
		p, err = s.bootNode(life, c, name)
	}
	if err != nil {
		return err
	}
	n := &node{name: name, process: p, started: started, dead: make(chan struct{})}
	s.mu.Lock()
	s.nodes[name] = n
	s.mu.Unlock()
	s.watchers.Go(func() { // stopAll ends all nodes
		err := n.process.Wait(context.Background())
		fmt.Fprintf(os.Stderr, "%s has ended: %s %v\n", n.name, n.process.Close(), err)
		close(n.dead)
	})
	return nil
}

func (s *Supervisor) attach(c layout.Cluster, name string, pid int) error {
	var others []network.Member
	for _, other := range c.Nodes {
		if n := s.node(other); other != name && n != nil && n.alive() {
			others = append(others, network.Member{Node: other, PID: n.process.PID})
		}
	}
	if err := network.AttachNode(c, name, pid, s.mtu); err != nil {
		return err
	}
	return network.ConnectLans(c, network.Member{Node: name, PID: pid}, others)
}

// refreshed are the components of a node that may restart without effect on its pods.
var refreshed = []string{"kubelet", "kube-proxy", nodeinit.CSINode, nodeinit.Policies}

// refresh ends components whose executables were rebuilt; the node's init restarts them.
func refresh(pids []int) error {
	var errs []error
	for _, pid := range pids {
		argv := proc.Argv(pid)
		if !slices.Contains(refreshed, proc.Program(argv)) || !proc.Outdated(pid) {
			continue
		}
		p, err := proc.Open(pid)
		if err != nil {
			continue // already gone
		}
		errs = append(errs, p.Signal(unix.SIGTERM))
		p.Close()
	}
	return errors.Join(errs...)
}

func (s *Supervisor) node(name string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name]
}

func (s *Supervisor) bootNode(ctx context.Context, c layout.Cluster, name string) (*proc.Process, error) {
	// The node's previous life may have left remains.
	if err := s.clearNode(ctx, c, name); err != nil {
		return nil, err
	}
	if err := s.writeNodeConfig(c, name); err != nil {
		return nil, err
	}
	hold, release, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the pipe to %s: %w", name, err)
	}
	defer release.Close()
	p, err := proc.Start(proc.Spec{
		Path:  s.self,
		Argv:  nodeinit.Argv(c, name),
		Env:   environ.Of(c, os.Environ()),
		Log:   c.NodeLog(name, "init"),
		Files: []*os.File{hold},
		Attr: &syscall.SysProcAttr{
			Setsid: true,
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
				unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		},
	})
	err = errors.Join(err, hold.Close())
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := s.attach(c, name, p.PID); err != nil {
		return nil, errors.Join(err, p.Signal(unix.SIGKILL))
	}
	if _, err := release.Write([]byte{1}); err != nil {
		return nil, errors.Join(fmt.Errorf("letting %s go on (see %s): %w", name, c.NodeLog(name, "init"), err), p.Signal(unix.SIGKILL))
	}
	return p, nil
}

func (s *Supervisor) clearNode(ctx context.Context, c layout.Cluster, name string) error {
	if err := s.tree.Destroy(ctx, c.NodeCgroup(name)); err != nil {
		return err
	}
	// No container is left that has CPUs of its own. The kubelet refuses the state of another policy.
	if err := os.Remove(c.Node(name, "kubelet", "cpu_manager_state")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the state of the CPU manager of %s: %w", name, err)
	}
	return loop.Detach(ctx, c.LoopTag(name), c.Node(name))
}

func (s *Supervisor) writeNodeConfig(c layout.Cluster, name string) error {
	kubelet, err := render.Kubelet(c, s.facts, name)
	if err != nil {
		return err
	}
	proxy, err := render.Proxy(c, s.facts, name)
	if err != nil {
		return err
	}
	files := map[string]string{
		c.Node(name, "kubelet.yaml"):                        kubelet,
		c.Node(name, "kube-proxy.yaml"):                     proxy,
		c.Node(name, "containerd.toml"):                     render.Containerd(s.facts, s.beside("runc")),
		c.Node(name, "resolv.conf"):                         render.ResolvConf(s.facts),
		c.Node(name, "cni", "net.d", "10-drydock.conflist"): render.CNI(c, name, s.mtu, s.beside(layout.Multus)),
	}
	for path, content := range files {
		if err := layout.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return s.tree.Create(c.NodeCgroup(name))
}

func (s *Supervisor) killNode(ctx context.Context, name string, say report) error {
	if err := s.current().Find(name); err != nil {
		return fmt.Errorf("killing %s: %w", name, err)
	}
	n := s.node(name)
	if n == nil || !n.alive() {
		return fmt.Errorf("killing %s: it does not run", name)
	}
	if err := n.process.Signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-n.dead:
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to die: %w", name, ctx.Err())
	}
	if err := s.clearNode(ctx, s.current(), name); err != nil {
		return err
	}
	say("%s is dead", name)
	return nil
}

func (s *Supervisor) current() layout.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}
