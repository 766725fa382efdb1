package launcher

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/agent"
)

const defaultProbeTimeout = time.Second

// probeMain is `virt-launcher probe guest-agent-ping` and `virt-launcher probe exec -- COMMAND ARG...`, which the
// kubelet runs in the launcher's container for a VMI's probes. The exit code is that of the guest's program.
func probeMain(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return exitFailed, fmt.Errorf("probe needs one of guest-agent-ping, exec")
	}
	flags := flag.NewFlagSet("probe "+args[0], flag.ContinueOnError)
	timeout := duration(defaultProbeTimeout)
	flags.Var(&timeout, "timeout", "how long the guest has to answer, such as 5s; a bare number means seconds")
	socket := flags.String("socket", layout.Socket(layout.AgentSocket), "the guest agent's port")
	if err := flags.Parse(args[1:]); err != nil {
		return exitFailed, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout))
	defer cancel()
	client, err := agent.Dial(ctx, *socket)
	if err != nil {
		return exitFailed, err
	}
	defer func() { _ = client.Close() }()
	switch args[0] {
	case "guest-agent-ping":
		if err := client.Ping(ctx); err != nil {
			return exitFailed, err
		}
		return exitOK, nil
	case "exec":
		return probeExec(ctx, client, flags.Args())
	}
	return exitFailed, fmt.Errorf("%q is none of guest-agent-ping, exec", args[0])
}

func probeExec(ctx context.Context, client *agent.Client, command []string) (int, error) {
	if len(command) == 0 {
		return exitFailed, fmt.Errorf("probe exec needs a command")
	}
	result, err := client.Exec(ctx, command[0], command[1:])
	if err != nil {
		return exitFailed, err
	}
	// The kubelet shows a failed probe's output in its event.
	_, _ = os.Stdout.Write(result.Stdout)
	_, _ = os.Stderr.Write(result.Stderr)
	if result.ExitCode < 0 {
		return exitFailed, fmt.Errorf("a signal ended %s", command[0])
	}
	return result.ExitCode, nil
}

// duration is a flag value that also accepts seconds without a unit.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	if seconds, err := strconv.Atoi(text); err == nil {
		*d = duration(time.Duration(seconds) * time.Second)
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration", text)
	}
	*d = duration(parsed)
	return nil
}
