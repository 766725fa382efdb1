//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/test/console"
)

func openConsole(t *testing.T, namespace, name string) *console.Console {
	t.Helper()
	c, err := client.New(cluster.config)
	if err != nil {
		t.Fatalf("making a client of the subresources: %v", err)
	}
	ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: name}
	var conn net.Conn
	eventually(t, "the console of "+name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, oneAttempt)
		defer cancel()
		conn, err = c.Stream(ctx, ref, "console")
		return err
	})
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	return console.New(conn)
}

// The console is opened long after the boot, and must show its output.
func consoleShowsWhatWasMissed(t *testing.T, ns string) {
	t.Helper()
	awaitVMI(t, ns, "machine", "the guest agent", func(vmi *v1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
			return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue
		})
	})
	if out := do(t, ns, "console", "machine", "--until", "drydock guest ready.*"); !strings.Contains(out, "drydock guest ready") {
		t.Errorf("the console shows %q", out)
	}
}

// The same virtctl console must go on after a migration.
func consoleGoesOnThroughAMigration(t *testing.T, ns, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, binary("virtctl"), "-n", ns, "console", name)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said, noted transcript
	command.Stdout, command.Stderr = &said, &noted
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	shows := func(when string, mark int) {
		t.Helper()
		if _, err := fmt.Fprintf(stdin, "echo mark-$((%d+1))\n", mark); err != nil {
			t.Fatalf("typing %s: %v; virtctl says %q", when, err, noted.String())
		}
		said.await(t, when, fmt.Sprintf("mark-%d", mark+1))
	}
	noted.await(t, "the beginning", "Successfully connected")
	shows("before the migration", 10)
	from := awaitRunning(t, ns, name).Status.NodeName
	to := migrated(t, ns, name).Status.NodeName
	line := fmt.Sprintf("[VM %s has migrated from node %s to node %s; its console goes on]", name, from, to)
	noted.await(t, "the migration", line)
	shows("after the migration", 20)
	if n := strings.Count(noted.String(), "console goes on"); n != 1 {
		t.Errorf("the user was told %d times: %q", n, noted.String())
	}
	cancel()
	_ = command.Wait() // the context killed it, so it fails
}

// transcript holds a program's output so far.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *transcript) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

func (p *transcript) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *transcript) await(t *testing.T, when, want string) {
	t.Helper()
	p.awaitWithin(t, patience, when, want)
}

// awaitWithin is await with a time limit.
func (p *transcript) awaitWithin(t *testing.T, limit time.Duration, when, want string) {
	t.Helper()
	eventuallyWithin(t, limit, when, func(context.Context) error {
		if text := p.String(); !strings.Contains(text, want) {
			return fmt.Errorf("%q is not in %q", want, text)
		}
		return nil
	})
}
