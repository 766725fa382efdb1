package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/environ"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/nodeinit"
	"drydock.dev/local/internal/podnetwork"
	"drydock.dev/local/internal/proc"
	"drydock.dev/local/internal/render"
	"drydock.dev/local/internal/supervisor"
)

func newUp(o *options) *cobra.Command {
	var nodes int
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or the parts of it that do not run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return o.up(ctx, nodes)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 2, "number of nodes; nodes that exist are never taken away")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the cluster")
	return cmd
}

func (o *options) up(ctx context.Context, nodes int) error {
	began := time.Now()
	programs, err := o.checkHost()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	// Nodes don't evict pods for a full disk, so a program would only fail at a write.
	little, err := host.LittleSpace([]host.Need{{Dir: o.dir, Bytes: host.ClusterSpace, For: "a cluster takes"}})
	for _, problem := range little {
		fmt.Fprintf(o.err, "drydock: warning: %s (--dir)\n", problem)
	}
	if err != nil {
		return err
	}
	c, err := o.record(nodes)
	if err != nil {
		return err
	}
	if err := errors.Join(reachDirectly(c), ownImages(c, programs)); err != nil {
		return err
	}
	err = supervisor.ErrGone
	for tries := 0; tries < 3 && errors.Is(err, supervisor.ErrGone); tries++ {
		if err := o.ensureSupervisor(ctx, c); err != nil {
			return err
		}
		err = supervisor.NewClient(c).Call(ctx, "/up", func(p supervisor.Progress) {
			fmt.Fprintf(o.out, "%6.1fs  %s\n", time.Since(began).Seconds(), p.Text)
		})
	}
	if err != nil {
		return fmt.Errorf("bringing cluster %s up: %w", c.Name, explain(ctx, c, err))
	}
	fmt.Fprintf(o.out, "Cluster %s with %d nodes is up after %.1fs.\nexport KUBECONFIG=%s\n",
		c.Name, len(c.Nodes), time.Since(began).Seconds(), c.Kubeconfig())
	return nil
}

// A timeout's error gets the missing parts and the place of the logs.
func explain(ctx context.Context, c layout.Cluster, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	st, statusErr := look(context.WithoutCancel(ctx), c)
	if statusErr != nil {
		return errors.Join(err, statusErr)
	}
	missing := st.Missing()
	if len(missing) == 0 {
		missing = []string{"nothing that 'drydock status' shows"}
	}
	return fmt.Errorf("it takes longer than --timeout; missing: %s; the logs are in %s, and up can be called again",
		strings.Join(missing, ", "), filepath.Dir(c.Log("supervisor")))
}

// checkHost reports all missing requirements at once. It returns the folder of our programs.
func (o *options) checkHost() (programs string, err error) {
	missing, err := host.Missing(o.dir)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	programs = filepath.Dir(self)
	for _, name := range companions {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			missing = append(missing, fmt.Sprintf("%s is not beside the drydock program: build it with: make build", filepath.Join(programs, name)))
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("checking this machine:\n  %s", strings.Join(missing, "\n  "))
	}
	return programs, nil
}

var companions = []string{
	"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "loopback", "portmap", "static", "coredns", "pause",
	podnetwork.Program, layout.Multus, supervisor.Storage, nodeinit.CSINode, nodeinit.Policies, layout.SnapshotDefinitions,
}

// The supervisor would keep the memory of building images.
func ownImages(c layout.Cluster, programs string) error {
	store := image.NewStore(c.Images())
	for ref, program := range map[string]string{render.PauseImage: "pause", render.DNSImage: "coredns"} {
		if err := store.AddBinary(ref, filepath.Join(programs, program)); err != nil {
			return err
		}
	}
	return nil
}

// A lock makes concurrent calls choose their subnets one after the other.
func (o *options) record(nodes int) (layout.Cluster, error) {
	unlock, err := lockFile("/run/lock/drydock.lock")
	if err != nil {
		return layout.Cluster{}, err
	}
	defer unlock()
	c, found, err := layout.Load(o.name, o.dir)
	if err != nil {
		return c, err
	}
	if c, err = c.Claim(found); err != nil {
		return c, err
	}
	if c, err = network.ChooseSubnet(c, found); err != nil {
		return c, err
	}
	if c, err = c.WithNodes(nodes); err != nil {
		return c, err
	}
	if network.Present(c) {
		return c, c.Save()
	}
	if err := c.Save(); err != nil {
		return c, err
	}
	mtu, err := network.MTU()
	if err != nil {
		return c, err
	}
	// The bridge's route keeps other clusters off this subnet.
	return c, network.EnsureHost(c, mtu)
}

// ensureSupervisor starts the supervisor if none listens, or replaces one of an older build. The
// supervisor may be killed at any time: its successor takes over.
func (o *options) ensureSupervisor(ctx context.Context, c layout.Cluster) error {
	if pid := listener(c); pid != 0 {
		if !proc.Outdated(pid) {
			return nil
		}
		if err := replace(ctx, pid); err != nil {
			return fmt.Errorf("replacing the supervisor by the new build: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding our own program: %w", err)
	}
	p, err := proc.Start(proc.Spec{
		Path: self, Argv: supervisor.Argv(c), Env: environ.Of(c, os.Environ()), Log: c.Log("supervisor"),
		Attr: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	died, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_ = p.Wait(died) // the loop below ends either way
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !answers(c) {
		select {
		case <-died.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("starting the supervisor: it ended at once (%s); %s says why", p.Close(), c.Log("supervisor")))
		case <-tick.C:
		}
	}
	return nil
}

func answers(c layout.Cluster) bool { return listener(c) != 0 }

// listener returns the PID of the listening supervisor, 0 if there is none.
func listener(c layout.Cluster) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: c.Socket()}); err != nil {
		return 0
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(peer.Pid)
}

func replace(ctx context.Context, pid int) error {
	p, err := proc.Open(pid)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// lockFile takes a lock that is released at the latest when the process ends.
func lockFile(path string) (unlock func(), err error) {
	// Some machines start without /run/lock.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
