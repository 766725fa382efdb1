// Package console is virtctl console: the guest's serial port in the user's terminal. It must not start or stop
// the guest.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/relay"
)

// escape is Ctrl+], which Ctrl+5 sends, too, on many keyboards.
const escape = 29

type options struct {
	name    string
	timeout time.Duration
	// until, if set, makes the command print up to the first matching line and end.
	until *regexp.Regexp
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var minutes int
	var until string
	cmd := &cobra.Command{
		Use:   "console VMI",
		Short: "Connect to the serial console of a virtual machine instance",
		Long: "Connect to the serial console of a virtual machine instance. Ctrl+] or Ctrl+5 leaves it.\n" +
			"Several consoles of one machine can be open at the same time; all show the same.",
		Example: e.Example("# Connect to the console of 'vm-cirros':", "console vm-cirros",
			"# Wait at most ten minutes for it to run:", "console vm-cirros --timeout=10",
			"# In a script, print what the guest says up to a line:", "console vm-cirros --until='guest ready'"),
		Args: env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := parse(args[0], minutes, until)
			if err != nil {
				return err
			}
			return run(cmd.Context(), e, o)
		},
	}
	cmd.Flags().IntVar(&minutes, "timeout", 5, "minutes to wait for the virtual machine instance to run")
	cmd.Flags().StringVar(&until, "until", "", "send nothing, and leave after the first line that this regular expression matches")
	return cmd
}

func parse(name string, minutes int, until string) (options, error) {
	if minutes <= 0 {
		return options{}, fmt.Errorf("--timeout must be at least 1 minute, but is %d", minutes)
	}
	o := options{name: name, timeout: time.Duration(minutes) * time.Minute}
	if until == "" {
		return o, nil
	}
	var err error
	if o.until, err = regexp.Compile(until); err != nil {
		return options{}, fmt.Errorf("--until must be a regular expression: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, e *env.Env, o options) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: o.name}
	if err := await(ctx, e, c, ref, o.timeout); err != nil {
		return err
	}
	conn, err := open(ctx, c, ref, func(line string) { fmt.Fprintf(e.Err, "\r\n%s\r\n", line) })
	if err != nil {
		return fmt.Errorf("connecting to the console of VMI %s: %w", o.name, err)
	}
	defer func() { _ = conn.Close() }()
	if o.until != nil {
		return watch(ctx, e.Out, conn, o.until)
	}
	fmt.Fprintf(e.Err, "Successfully connected to %s console. Press Ctrl+] or Ctrl+5 to exit console.\n", o.name)
	fd, isTerminal := e.Terminal()
	if !isTerminal {
		return dictate(ctx, e.In, e.Out, conn)
	}
	previous, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("putting the terminal into raw mode: %w", err)
	}
	err = converse(ctx, e.In, e.Out, conn)
	if restoreErr := term.Restore(fd, previous); restoreErr != nil {
		err = errors.Join(err, fmt.Errorf("restoring the terminal: %w", restoreErr))
	}
	fmt.Fprintln(e.Err)
	return err
}

func await(ctx context.Context, e *env.Env, c *client.Client, ref client.Ref, timeout time.Duration) error {
	late := fmt.Errorf("it did not run within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	var last v1.VirtualMachineInstancePhase
	return c.AwaitRunning(ctx, ref.Namespace, ref.Name, func(phase v1.VirtualMachineInstancePhase) {
		if phase != last && phase != "" && phase != v1.Running {
			fmt.Fprintf(e.Err, "Waiting for VMI %s to run: it is in phase %s\n", ref.Name, phase)
		}
		last = phase
	})
}

// dictate is converse for input that is not typed.
func dictate(ctx context.Context, in io.Reader, out io.Writer, conn net.Conn) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	d := &dictation{
		done: ctx.Done(), in: in, out: out, heard: make(chan struct{}, 1),
		guest: speech{at: time.Now(), expected: true},
	}
	return converse(ctx, d, d, conn)
}

// converse copies in both directions until the user leaves, the guest's side ends, or the context ends.
func converse(ctx context.Context, in io.Reader, out io.Writer, conn net.Conn) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	return relay.Stdio(ctx, &keyboard{in: in, leave: leave}, out, conn)
}

type keyboard struct {
	in    io.Reader
	leave func()
	left  bool
}

// Read calls leave only after the input before the escape character has been sent, which is when the caller
// reads again.
func (k *keyboard) Read(p []byte) (int, error) {
	if k.left {
		k.leave()
		return 0, io.EOF
	}
	n, err := k.in.Read(p)
	if i := bytes.IndexByte(p[:n], escape); i >= 0 {
		k.left = true
		return i, nil
	}
	return n, err
}
