package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/local/internal/deploy"
	"drydock.dev/local/internal/distribution"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/manifest"
	"drydock.dev/local/internal/prerequisites"
)

type runOptions struct {
	nodes     int
	noInstall bool
	timeout   time.Duration
}

func newRun(o *options) *cobra.Command {
	var r runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start the cluster with Drydock in it, boot a virtual machine and show its console",
		Long: `Start the cluster with Drydock in it, boot a virtual machine and show its console.

It uses the programs, images and manifests that lie beside this program. It can be
called again at any time: what runs stays, what has changed is brought in, and what
was interrupted is completed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			return o.run(ctx, r)
		},
	}
	cmd.Flags().IntVar(&r.nodes, "nodes", 2, "number of nodes; nodes that exist are never taken away")
	cmd.Flags().BoolVar(&r.noInstall, "no-install", false, "install no package; only name those that are missing")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 15*time.Minute, "how long to wait for all of it")
	return cmd
}

// step is a part of `drydock run`. Repeating it completes an interrupted call.
type step struct {
	doing string
	do    func(context.Context) error
}

func (o *options) run(ctx context.Context, r runOptions) error {
	began := time.Now()
	parts, err := o.prepare(ctx, r)
	if err != nil {
		return err
	}
	s := session{options: o, parts: parts, began: began}
	steps := []step{
		{fmt.Sprintf("starting a Kubernetes of %d nodes", r.nodes), func(ctx context.Context) error { return o.up(ctx, r.nodes) }},
		{"loading the images", func(ctx context.Context) error { return o.loadImages(ctx, parts.Images) }},
		{"installing Drydock", s.install},
		{"booting a virtual machine", s.boot},
		{"what the guest says on its serial console", s.console},
	}
	for i, step := range steps {
		fmt.Fprintf(o.out, "\n== %d of %d, after %.1fs: %s\n", i+1, len(steps), time.Since(began).Seconds(), step.doing)
		if err := step.do(ctx); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("%w; all of it took longer than --timeout=%s", err, r.timeout)
			}
			return err
		}
	}
	c, err := s.cluster()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.out, whatToTry(filepath.Dir(s.parts.Virtctl), c, time.Since(s.began)))
	return err
}

func (o *options) prepare(ctx context.Context, r runOptions) (distribution.Parts, error) {
	self, err := os.Executable()
	if err != nil {
		return distribution.Parts{}, fmt.Errorf("finding our own program: %w", err)
	}
	parts, err := distribution.Find(filepath.Dir(self))
	if err != nil {
		return parts, err
	}
	missing := prerequisites.Missing(prerequisites.Run)
	if len(missing) == 0 {
		return parts, nil
	}
	packages := prerequisites.Packages(missing)
	if _, err := exec.LookPath("apt-get"); err != nil || r.noInstall || os.Geteuid() != 0 {
		var names []string
		for _, p := range missing {
			names = append(names, p.String())
		}
		return parts, fmt.Errorf("checking this machine: not installed:\n  %s\non Debian and Ubuntu, as root:\n  apt-get update && %s",
			strings.Join(names, "\n  "), strings.Join(prerequisites.InstallCommand(packages), " "))
	}
	fmt.Fprintf(o.out, "installing %s\n", strings.Join(packages, ", "))
	for _, args := range [][]string{{"apt-get", "update"}, prerequisites.InstallCommand(packages)} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return parts, fmt.Errorf("running %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return parts, nil
}

type session struct {
	*options
	parts distribution.Parts
	began time.Time
}

func (s session) install(ctx context.Context) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	return s.deploy(ctx, c, []string{s.parts.Install, s.parts.KubeVirt}, func(text string) {
		fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), text)
	})
}

// boot applies the example by `kubectl apply`, so that the user's own `kubectl apply` later finds
// its annotation, and waits until the guest runs.
func (s session) boot(ctx context.Context) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	objects, err := manifest.Read(s.parts.Example)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding our own program: %w", err)
	}
	apply := exec.CommandContext(ctx, self, "--dir", c.Dir, "--name", c.Name, "kubectl", "apply", "-f", s.parts.Example)
	if err := s.pass(apply); err != nil {
		return fmt.Errorf("applying %s: %w", s.parts.Example, err)
	}
	cluster, err := deploy.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := cluster.Await(ctx, object); err != nil {
			return fmt.Errorf("%w; to see more: drydock kubectl describe vm,vmi", err)
		}
	}
	return nil
}

const (
	machine = "vm-drydock"
	// guestLine matches the test guest's output after boot. A console that is opened later shows
	// the last screen.
	guestLine = "drydock guest ready.*"
)

// quiet is how long to wait for output of a guest that has run for a while.
const quiet = 10 * time.Second

func (s session) console(ctx context.Context) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	cluster, err := deploy.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	instance := &unstructured.Unstructured{}
	instance.SetAPIVersion("kubevirt.io/v1")
	instance.SetKind("VirtualMachineInstance")
	instance.SetName(machine)
	made, err := cluster.Created(ctx, instance)
	if err != nil {
		return err
	}
	booted := made.Before(s.began.Truncate(time.Second)) // times in the API have no fractions of a second
	if booted {
		// The guest has printed the line already, perhaps to a console that is not kept any more.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	read := exec.CommandContext(ctx, s.parts.Virtctl, "console", machine, "--timeout", "5", "--until", guestLine)
	read.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	err = s.pass(read)
	if booted && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintln(s.out, "(The guest has run since before this command, and says nothing now.)")
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the guest's console until %q: %w; to see more: drydock kubectl describe vmi %s", guestLine, err, machine)
	}
	return nil
}

// At the end of the context the program gets SIGTERM and, 5 s later, SIGKILL.
func (s session) pass(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = s.out, s.err
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}

func whatToTry(programs string, c layout.Cluster, took time.Duration) string {
	drydock := filepath.Join(programs, "drydock")
	if c.Dir != layout.DefaultDir {
		drydock += " --dir " + c.Dir
	}
	if c.Name != layout.DefaultName {
		drydock += " --name " + c.Name
	}
	virtctl := filepath.Join(programs, "virtctl")
	return fmt.Sprintf(`
A virtual machine runs, %.1fs after this command began. What to try next:

  export KUBECONFIG=%s    # for virtctl and any kubectl
  %[3]s kubectl get vm,vmi,pods -A
  %[4]s console %[5]s    # login guest, password guest; leave with Ctrl-]
  %[4]s vnc %[5]s
  %[4]s web    # all machines in a browser, until Ctrl-C
  %[4]s stop %[5]s
  %[3]s down             # stops the cluster and keeps its data; with --purge it goes, too
`, took.Seconds(), c.Kubeconfig(), drydock, virtctl, machine)
}
