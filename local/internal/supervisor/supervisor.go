// Package supervisor is the daemon of a cluster. It owns the processes of the control plane and the nodes, and
// serves commands on a Unix socket. It must have no persistent state: the record is the desired state and the
// cluster's cgroup the actual one, so that another supervisor can take over.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/proc"
)

// Command is the hidden subcommand that calls Run.
const Command = "supervisor"

// Argv is the supervisor's command line.
func Argv(c layout.Cluster) []string {
	return []string{"drydock", Command, c.Name, c.Dir}
}

// Supervisor runs the components of a cluster.
type Supervisor struct {
	facts  host.Facts
	tree   cgroup.Tree
	self   string
	mtu    int
	runner *proc.Runner

	// up serializes all changes of the cluster.
	up sync.Mutex

	mu      sync.Mutex
	cluster layout.Cluster
	control []*proc.Task
	nodes   map[string]*node
	// watchers are the goroutines of watch.
	watchers sync.WaitGroup
}

// Run runs the supervisor until the cluster is down.
func Run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("starting the supervisor: want name and folder, got %q", args)
	}
	c, found, err := layout.Load(args[0], args[1])
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("starting the supervisor: there is no cluster in %s", c.Dir)
	}
	lock, err := takeLock(c.SupervisorLock())
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := newSupervisor(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	return s.serve(ctx, end)
}

func newSupervisor(c layout.Cluster) (*Supervisor, error) {
	facts, err := host.Gather()
	if err != nil {
		return nil, err
	}
	tree, err := cgroup.Open(facts.CgroupV2)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tree.Join(c.ControlCgroup()), tree.Prefer(c.ControlCgroup())); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	mtu, err := network.MTU()
	if err != nil {
		return nil, err
	}
	s := &Supervisor{facts: facts, tree: tree, self: self, mtu: mtu, cluster: c, nodes: map[string]*node{}}
	s.runner = &proc.Runner{Log: os.Stderr, Candidates: func() ([]int, error) { return tree.Procs(c.ControlCgroup()) }}
	return s, nil
}

// takeLock makes sure that there is only one supervisor. The lock ends with the process.
func takeLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", path, err)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the supervisor's lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the supervisor: another one runs already (%s): %w", path, err), lock.Close())
	}
	return lock, nil
}

// serve serves commands until the context ends, and then stops the cluster.
func (s *Supervisor) serve(ctx context.Context, end context.CancelFunc) error {
	socket := s.cluster.Socket()
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket of an earlier supervisor: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("closing the socket to others: %w", err), listener.Close())
	}
	checks := time.NewTicker(checkCertificates)
	defer checks.Stop()
	var renewing sync.WaitGroup
	renewing.Go(func() { s.keepCertificates(ctx, checks.C) })
	defer renewing.Wait()
	defer end()
	server := &http.Server{Handler: s.handler(ctx, end), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err := <-failed:
		return fmt.Errorf("serving commands: %w", err)
	}
	s.stopAll()
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(last)
}

// stopAll stops the nodes, then the control plane in reverse order, with etcd last.
func (s *Supervisor) stopAll() {
	s.up.Lock()
	defer s.up.Unlock()
	s.mu.Lock()
	nodes, control := s.nodes, s.control
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, n := range nodes {
		ending.Go(n.stop)
	}
	ending.Wait()
	s.watchers.Wait()
	for i := len(control) - 1; i >= 0; i-- {
		control[i].Stop()
	}
}
