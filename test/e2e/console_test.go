//go:build e2e

package e2e

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/test/console"
)

// openConsole opens a VMI's serial console through the API server.
func openConsole(t *testing.T, namespace, name string) *console.Console {
	t.Helper()
	c, err := client.New(cluster.config)
	if err != nil {
		t.Fatalf("making a client of the subresources: %v", err)
	}
	ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: name}
	var conn net.Conn
	eventually(t, "the console of "+name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err = c.Stream(ctx, ref, "console")
		return err
	})
	t.Cleanup(func() { _ = conn.Close() }) // the test is over, whatever the close says
	return console.New(conn)
}

// TestConsoleShowsWhatWasMissed looks at a console for the first time when the
// guest has long booted.
func TestConsoleShowsWhatWasMissed(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, newVMI(ns, "booted"))
	awaitVMI(t, ns, "booted", "the guest agent", func(vmi *v1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
			return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue
		})
	})
	if out := do(t, ns, "console", "booted", "--until", "drydock guest ready.*"); !strings.Contains(out, "drydock guest ready") {
		t.Errorf("the console shows %q", out)
	}
}
