package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// show shows a migration until it has ended. On a terminal that is one line that changes,
// elsewhere a line for each change.
func show(ctx context.Context, e *env.Env, c *client.Client, m *v1.VirtualMachineInstanceMigration) error {
	_, isTerminal := e.OutTerminal()
	line := &progress{env: e, began: time.Now(), rewrites: isTerminal}
	stop := line.keepTime(ctx)
	ended, err := c.AwaitMigration(ctx, m.Namespace, m.Name, func(m *v1.VirtualMachineInstanceMigration) { line.set(describe(m)) })
	stop()
	if err != nil {
		return err
	}
	took := time.Since(line.began).Round(time.Second)
	state := ended.Status.MigrationState
	if ended.Status.Phase == v1.MigrationSucceeded {
		line.end(fmt.Sprintf("VM %s has migrated%s in %v", ended.Spec.VMIName, between(state), took))
		return nil
	}
	line.end("")
	reason := "it does not say why"
	if state != nil && state.FailureReason != "" {
		reason = state.FailureReason
	}
	return fmt.Errorf("migration %s of VM %s has failed after %v: %w", ended.Name, ended.Spec.VMIName, took, errors.New(reason))
}

// describe says how far a migration is.
func describe(m *v1.VirtualMachineInstanceMigration) string {
	phase := string(m.Status.Phase)
	if phase == "" {
		phase = string(v1.MigrationPending)
	}
	text := phase
	if m.DeletionTimestamp != nil {
		text += " (is being canceled)"
	}
	for _, c := range m.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (string(c.Type) == layout.MigrationWaiting || c.Type == v1.VirtualMachineInstanceMigrationRejectedByResourceQuota) {
			text += ": " + c.Message
		}
	}
	return text
}

// between names the two nodes, as far as they are known.
func between(state *v1.VirtualMachineInstanceMigrationState) string {
	if state == nil || state.SourceNode == "" || state.TargetNode == "" {
		return ""
	}
	return fmt.Sprintf(" from node %s to node %s", state.SourceNode, state.TargetNode)
}

// progress is what a user is shown of a migration.
type progress struct {
	env   *env.Env
	began time.Time
	// rewrites means that the line is written again over itself.
	rewrites bool
	mu       sync.Mutex
	text     string
}

// clearLine returns to the line's beginning and deletes it.
const clearLine = "\r\033[K"

// set shows another text.
func (p *progress) set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.text {
		return
	}
	p.text = text
	if !p.rewrites {
		fmt.Fprintln(p.env.Out, text)
		return
	}
	p.draw()
}

// draw writes the line over itself.
func (p *progress) draw() {
	fmt.Fprintf(p.env.Out, "%s%s, %v", clearLine, p.text, time.Since(p.began).Round(time.Second))
}

// keepTime shows on a terminal that time passes, until stop is called.
func (p *progress) keepTime(ctx context.Context) (stop func()) {
	if !p.rewrites {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ticks := time.NewTicker(time.Second)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			}
		}
	})
	return func() {
		cancel()
		ticks.Stop()
		done.Wait()
	}
}

// end replaces the line by a last one, "" for none.
func (p *progress) end(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rewrites {
		fmt.Fprint(p.env.Out, clearLine)
	}
	if text != "" {
		fmt.Fprintln(p.env.Out, text)
	}
}
