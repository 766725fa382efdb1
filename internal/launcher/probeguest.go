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

// afterthought bounds the question to the launcher whether a failed probe counts.
const afterthought = 2 * time.Second

const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// guestProbe is a probe that the kubelet runs in the launcher's container.
type guestProbe struct {
	kind     string
	timeout  duration
	liveness bool   // it succeeds while the guest is away, or stopped by Drydock or its user
	agent    string // the guest agent's port
	dir      string // of the launcher's sockets
	command  []string
}

const probeKinds = "guest-agent-ping, exec, guest-began"

// probeMain is `virt-launcher probe guest-agent-ping` and `virt-launcher probe exec -- COMMAND ARG...` for a VMI's
// probes, and `virt-launcher probe guest-began`, which waits until the guest runs here. The exit code is that of the
// guest's program.
func probeMain(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return exitFailed, fmt.Errorf("probe needs one of %s", probeKinds)
	}
	p := guestProbe{kind: args[0], timeout: duration(defaultProbeTimeout)}
	flags := flag.NewFlagSet("probe "+p.kind, flag.ContinueOnError)
	flags.Var(&p.timeout, "timeout", "how long the guest has to answer, such as 5s; a bare number means seconds")
	flags.BoolVar(&p.liveness, "liveness", false, "succeed while the guest is not here, or is stopped on purpose")
	flags.StringVar(&p.agent, "socket", layout.Socket(layout.AgentSocket), "the guest agent's port")
	flags.StringVar(&p.dir, "dir", layout.PrivateDir, "folder of the launcher's sockets")
	if err := flags.Parse(args[1:]); err != nil {
		return exitFailed, err
	}
	p.command = flags.Args()
	limited, cancel := context.WithTimeout(ctx, time.Duration(p.timeout))
	defer cancel()
	code, err := p.ask(limited)
	if p.liveness && (err != nil || code != exitOK) && p.excused(ctx) {
		return exitOK, nil
	}
	return code, err
}

func (p *guestProbe) ask(ctx context.Context) (int, error) {
	switch p.kind {
	case "guest-agent-ping":
		return p.ping(ctx)
	case "exec":
		return p.exec(ctx)
	case "guest-began":
		return p.began(ctx)
	}
	return exitFailed, fmt.Errorf("%q is none of %s", p.kind, probeKinds)
}

// A failure counts if the launcher does not answer.
func (p *guestProbe) excused(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, afterthought)
	defer cancel()
	answer, err := askLauncher(ctx, p.dir)
	if err != nil || answer.Excuse == "" {
		return false
	}
	fmt.Fprintf(os.Stdout, "the guest's failure does not count: %s\n", answer.Excuse)
	return true
}

func (p *guestProbe) dial(ctx context.Context) (*agent.Client, error) {
	return agent.Dial(ctx, p.agent)
}

func (p *guestProbe) ping(ctx context.Context) (int, error) {
	client, err := p.dial(ctx)
	if err != nil {
		return exitFailed, err
	}
	defer func() { _ = client.Close() }() // the answer has arrived or is given up
	if err := client.Ping(ctx); err != nil {
		return exitFailed, err
	}
	return exitOK, nil
}

func (p *guestProbe) exec(ctx context.Context) (int, error) {
	if len(p.command) == 0 {
		return exitFailed, fmt.Errorf("probe exec needs a command")
	}
	result, err := agent.Exec(ctx, p.dial, p.command[0], p.command[1:])
	if err != nil {
		return exitFailed, err
	}
	// The kubelet shows a failed probe's output in its event.
	_, _ = os.Stdout.Write(result.Stdout)
	_, _ = os.Stderr.Write(result.Stderr)
	if result.ExitCode < 0 {
		return exitFailed, fmt.Errorf("a signal ended %s", p.command[0])
	}
	return result.ExitCode, nil
}

// began waits until the guest runs here: the kubelet would warn of each failure of a startup probe.
func (p *guestProbe) began(ctx context.Context) (int, error) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		// The launcher may not listen yet.
		if answer, err := askLauncher(ctx, p.dir); err == nil && answer.Began {
			return exitOK, nil
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return exitFailed, fmt.Errorf("the guest has not run here for %s", time.Duration(p.timeout))
		}
	}
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
