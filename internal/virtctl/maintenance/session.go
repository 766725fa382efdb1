package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	contract "drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

const (
	// cleanup bounds the end of a session, also of an interrupted one.
	cleanup   = time.Minute
	endOfText = "\x04"
	// longest bounds the session of a virtctl that crashed.
	longest = 24 * time.Hour
)

type session struct {
	// vm is the user's word for the machine, of the parsed one.
	vm      string
	of      machine
	request contract.Request
	// noWait fails if others have the disks; restart restores the run strategy afterwards.
	noWait, halt, restart bool
	// keep leaves the pod running after it got the disks.
	keep bool

	c         *client.Client
	namespace string
	before    *v1.VirtualMachine
}

func (s *session) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.request.Image, "image", "", "the container's image, if not this installation's libguestfs-tools")
	f.StringVar(&s.request.ImagePullPolicy, "pull-policy", "", "when the image is pulled: Always, IfNotPresent, Never")
	f.BoolVar(&s.request.KVM, "kvm", true, "use hardware virtualization where the cluster does")
	f.BoolVar(&s.request.ReadOnly, "read-only", false, "mount the disks for reading only")
	f.StringSliceVar(&s.request.Disks, "disk", nil, "a volume of the machine, if not all that are on claims; repeat it for more")
	f.BoolVar(&s.request.BackendStorage, "backend-storage", false, "mount the claim of UEFI variables and TPM, too")
	f.StringToStringVar(&s.request.Resources.Requests, "requests", nil, "what the container asks for: cpu=1,memory=2Gi")
	f.StringToStringVar(&s.request.Resources.Limits, "limits", nil, "what the container may use: cpu=1,memory=2Gi")
	f.BoolVar(&s.halt, "halt", false, "stop the machine first, if it runs or would start by itself")
	f.BoolVar(&s.restart, "restart-after", false, "give the machine that --halt has stopped its run strategy back afterwards")
	wait := true
	f.BoolVar(&wait, "wait", true, "wait for the disks; with --wait=false fail where others have them")
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.noWait = !wait
		if s.restart && !s.halt {
			return errors.New("--restart-after goes with --halt: without, the machine stays as it is")
		}
		return inner(cmd, args)
	}
}

func (s *session) run(ctx context.Context, e *env.Env) error {
	var err error
	if s.of, err = named(s.vm); err != nil {
		return err
	}
	if s.halt && !s.of.isVM() {
		return fmt.Errorf("--halt is for VMs; %s ends if its spec.startStrategy is Maintenance, and begins anew when that is taken away", s.of)
	}
	if s.c, s.namespace, err = e.Connect(); err != nil {
		return err
	}
	if s.halt {
		if err := s.stop(ctx, e); err != nil {
			return err
		}
	}
	err = s.hold(ctx, e)
	if s.restart && s.before != nil {
		late, done := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer done()
		err = errors.Join(err, s.goBack(late, e))
	}
	return err
}

// ask requests the pod. It repeats the request while the server returns a delay, because the pod still needs
// something that is being created.
func (s *session) ask(ctx context.Context, e *env.Env) (*contract.State, error) {
	for told := ""; ; {
		state, err := s.c.Maintain(ctx, s.of.in(s.namespace), &s.request)
		seconds, later := apierrors.SuggestsClientDelay(err)
		if !later || !apierrors.IsConflict(err) {
			return state, err
		}
		if said := err.Error(); said != told {
			fmt.Fprintf(e.Err, "Waiting: %s\n", env.Plain(said))
			told = said
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, waiting: %w", ctx.Err(), err)
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}

func (s *session) hold(ctx context.Context, e *env.Env) error {
	if s.noWait {
		if err := s.free(ctx); err != nil {
			return err
		}
	}
	if !s.keep {
		s.request.DeadlineSeconds = int64(longest / time.Second)
	}
	state, err := s.ask(ctx, e)
	if err != nil {
		return fmt.Errorf("asking for the disks of %s: %w", s.of, err)
	}
	if state.Created == nil {
		return fmt.Errorf("asking for the disks of %s: the server does not say which pod it has made", s.of)
	}
	pod := state.Created.Name
	left := false
	defer func() {
		if !left {
			s.leave(ctx, e, pod)
		}
	}()
	if s.noWait {
		// Somebody may have been quicker.
		if behind := others(state, pod); behind != "" {
			return fmt.Errorf("%s: %s", s.of, env.Plain(behind))
		}
	}
	fmt.Fprintf(e.Err, "Waiting for the pod %s to get the disks of %s\n", pod, s.of)
	behind, err := started(ctx, e, s.c, s.namespace, pod, s.noWait)
	switch {
	case err != nil:
		return err
	case behind != "":
		return fmt.Errorf("%s: %s", s.of, behind)
	}
	if s.keep {
		left = true
		fmt.Fprintf(e.Out, "%s is in maintenance: its disks are below /disks in the pod %s\n", s.of, pod)
		return nil
	}
	if err := s.use(ctx, e, pod); err != nil {
		return err
	}
	return ended(ctx, e, s.c, s.namespace, pod)
}

func (s *session) free(ctx context.Context) error {
	state, err := s.c.Maintenance(ctx, s.of.in(s.namespace))
	if err != nil {
		return fmt.Errorf("asking who has the disks of %s: %w", s.of, err)
	}
	if behind := others(state, ""); behind != "" {
		return fmt.Errorf("%s: %s", s.of, env.Plain(behind))
	}
	return nil
}

// others describes the obstacle before the pod gets the disks, "" for none.
func others(state *contract.State, pod string) string {
	switch {
	case state.Holder != nil && state.Holder.Name == pod:
		return ""
	case state.Message != "":
		return state.Message
	case len(state.Queue) > 0 && state.Queue[0].Name != pod:
		return fmt.Sprintf("the pod %s waits for the disks already", state.Queue[0].Name)
	}
	return ""
}

func (s *session) use(ctx context.Context, e *env.Env, pod string) error {
	if s.request.Interactive {
		size := client.Size{}
		if fd, is := e.OutTerminal(); is {
			size.Width, size.Height, _ = term.GetSize(fd) // a terminal of unknown size is not resized
		}
		conn, err := s.c.Attach(ctx, s.namespace, pod, layout.MaintenanceContainer, size)
		if err != nil {
			return fmt.Errorf("attaching to pod %s: %w", pod, err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintln(e.Err, "Attached. Press Enter for a prompt; 'exit' ends the session and releases the disks.")
		fd, isTerminal := e.Terminal()
		if !isTerminal {
			return converse(ctx, e, conn)
		}
		previous, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("putting the terminal into raw mode: %w", err)
		}
		err = converse(ctx, e, conn)
		if restoreErr := term.Restore(fd, previous); restoreErr != nil {
			err = errors.Join(err, fmt.Errorf("restoring the terminal: %w", restoreErr))
		}
		fmt.Fprintln(e.Err)
		return err
	}
	log, err := s.c.Core().Pods(s.namespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	defer func() { _ = log.Close() }()
	if _, err := io.Copy(e.Out, log); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	return ctx.Err()
}

// leave deletes the pod and waits until the machine is unlocked, so that anybody can start it. It also runs
// after an interruption.
func (s *session) leave(ctx context.Context, e *env.Env, pod string) {
	ctx, done := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanup, fmt.Errorf("it takes longer than %s", cleanup))
	defer done()
	err := remove(ctx, s.c, s.namespace, pod)
	if err == nil {
		err = s.c.AwaitUnlocked(ctx, s.of.in(s.namespace), pod)
	}
	if err != nil {
		fmt.Fprintf(e.Err, "the pod %s may still have the disks of %s: %v\n", pod, s.of, err)
	}
}

func (s *session) stop(ctx context.Context, e *env.Env) error {
	vm, err := s.c.VM(ctx, s.namespace, s.of.name)
	if err != nil {
		return fmt.Errorf("reading VM %s: %w", s.of.name, err)
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("reading the run strategy of VM %s: %w", s.of.name, err)
	}
	if strategy != v1.RunStrategyHalted {
		if err := s.c.PatchVM(ctx, s.namespace, s.of.name, strategyPatch(vm, v1.RunStrategyHalted, vm.ResourceVersion)); err != nil {
			return fmt.Errorf("halting VM %s: %w", s.of.name, err)
		}
		s.before = vm
		fmt.Fprintf(e.Err, "VM %s was halted; its run strategy was %s\n", s.of.name, strategy)
	}
	return s.c.AwaitStopped(ctx, s.namespace, s.of.name)
}

// goBack restores the VM's run strategy, unless somebody has changed it since.
func (s *session) goBack(ctx context.Context, e *env.Env) error {
	vm, err := s.c.VM(ctx, s.namespace, s.of.name)
	if err != nil {
		return fmt.Errorf("reading VM %s: %w", s.of.name, err)
	}
	was, _ := s.before.RunStrategy()
	if is, err := vm.RunStrategy(); err != nil || is != v1.RunStrategyHalted {
		fmt.Fprintf(e.Err, "VM %s is left as it is: its run strategy was changed meanwhile\n", s.of.name)
		return nil
	}
	if err := s.c.PatchVM(ctx, s.namespace, s.of.name, strategyPatch(s.before, was, vm.ResourceVersion)); err != nil {
		return fmt.Errorf("giving VM %s its run strategy %s back: %w", s.of.name, was, err)
	}
	fmt.Fprintf(e.Err, "VM %s has its run strategy %s back\n", s.of.name, was)
	return nil
}

// strategyPatch sets a run strategy in the field that the VM uses, if the VM still has that version.
func strategyPatch(vm *v1.VirtualMachine, strategy v1.VirtualMachineRunStrategy, version string) map[string]any {
	spec := map[string]any{"runStrategy": strategy}
	if vm.Spec.Running != nil {
		spec = map[string]any{"running": strategy == v1.RunStrategyAlways}
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": version}, "spec": spec}
}

// started waits until the pod's container runs or has ended, and prints the reasons for the wait. With noWait
// it also returns when the pod waits for the disks, with the reason in behind.
func started(ctx context.Context, e *env.Env, c *client.Client, namespace, pod string, noWait bool) (behind string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	said := make(chan struct{})
	go func() {
		defer close(said)
		last := ""
		// Without the right to read events, or after a failure, fewer reasons are printed.
		_ = c.FollowEvents(watching, namespace, pod, func(event *corev1.Event) {
			if text := env.Plain(event.Message); event.Type == corev1.EventTypeWarning && text != last {
				last = text
				fmt.Fprintf(e.Err, "Waiting: %s\n", text)
			}
		})
	}()
	defer func() { <-said }()
	defer stop()
	last := ""
	err = c.AwaitPod(ctx, namespace, pod, func(p *corev1.Pod) bool {
		if behind = env.Plain(waiting(p, lockCondition)); noWait && behind != "" {
			return true
		}
		if text := env.Plain(waitsFor(p)); text != "" && text != last {
			last = text
			fmt.Fprintf(e.Err, "Waiting: %s\n", text)
		}
		behind = ""
		return p.Status.Phase != corev1.PodPending && p.Status.Phase != ""
	})
	return behind, err
}

const lockCondition corev1.PodConditionType = layout.MaintenanceLockCondition

// waiting returns the message of a pod's condition that is False, "" for none. A scheduling gate has no useful
// message.
func waiting(p *corev1.Pod, condition corev1.PodConditionType) string {
	for _, c := range p.Status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

func waitsFor(p *corev1.Pod) string {
	if why := cmp.Or(waiting(p, lockCondition), waiting(p, corev1.PodScheduled)); why != "" {
		return why
	}
	for _, status := range p.Status.ContainerStatuses {
		if w := status.State.Waiting; w != nil && w.Message != "" {
			return w.Message
		}
	}
	return ""
}

// ended waits for the pod's end and returns the exit code as an error.
func ended(ctx context.Context, e *env.Env, c *client.Client, namespace, pod string) error {
	var last *corev1.Pod
	err := c.AwaitPod(ctx, namespace, pod, func(p *corev1.Pod) bool {
		last = p
		return client.Ended(p.Status.Phase)
	})
	if err != nil || last.Status.Phase == corev1.PodSucceeded {
		return err
	}
	for _, status := range last.Status.ContainerStatuses {
		if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
			fmt.Fprintf(e.Err, "the pod's command has ended with exit code %d\n", t.ExitCode)
			return &env.Ended{Program: layout.MaintenanceContainer, Code: int(t.ExitCode)}
		}
	}
	return fmt.Errorf("pod %s has failed: %s", pod, env.Plain(last.Status.Reason+" "+last.Status.Message))
}

func remove(ctx context.Context, c *client.Client, namespace, pod string) error {
	err := c.Core().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// converse copies in both directions until the container's side or the context ends. The goroutine that reads
// the input can't be interrupted and ends with the process.
func converse(ctx context.Context, e *env.Env, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go func() {
		// The other direction sees the same error.
		if _, err := io.Copy(conn, e.In); err == nil {
			_, _ = io.WriteString(conn, endOfText)
		}
	}()
	_, err := io.Copy(e.Out, conn)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
