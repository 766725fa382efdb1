package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// A terminal gets one line that changes, anything else one line per change.
func show(ctx context.Context, e *env.Env, c *client.Client, m *v1.VirtualMachineInstanceMigration) error {
	_, isTerminal := e.OutTerminal()
	line := &progress{env: e, began: time.Now(), rewrites: isTerminal}
	stop := line.keepTime(ctx)
	forget := line.follow(ctx, c, m)
	ended, err := c.AwaitMigration(ctx, m.Namespace, m.Name, func(m *v1.VirtualMachineInstanceMigration) { line.set(describe(m)) })
	forget()
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

// follow shows the migration's progress in the VMI until forget is called. A user who may migrate a VMI may
// lack the right to read it, and sees only the phases.
func (p *progress) follow(ctx context.Context, c *client.Client, m *v1.VirtualMachineInstanceMigration) (forget func()) {
	vmi, err := c.VMI(ctx, m.Namespace, m.Spec.VMIName)
	if err != nil {
		return func() {}
	}
	p.tell(howFar(vmi, m.UID))
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		if err := c.FollowVMI(ctx, m.Namespace, m.Spec.VMIName, func(vmi *v1.VirtualMachineInstance) { p.tell(howFar(vmi, m.UID)) }); err != nil {
			p.tell(fmt.Sprintf("how far it is can't be read: %v", err))
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}

// howFar returns the migration's progress in the VMI, "" for none.
func howFar(vmi *v1.VirtualMachineInstance, migration types.UID) string {
	if state := vmi.Status.MigrationState; state == nil || state.MigrationUID != migration {
		return ""
	}
	for _, c := range vmi.Status.Conditions {
		if c.Type == layout.MigrationProgress && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

func between(state *v1.VirtualMachineInstanceMigrationState) string {
	if state == nil || state.SourceNode == "" || state.TargetNode == "" {
		return ""
	}
	return fmt.Sprintf(" from node %s to node %s", state.SourceNode, state.TargetNode)
}

type progress struct {
	env      *env.Env
	began    time.Time
	rewrites bool
	mu       sync.Mutex
	// text is the displayed combination.
	phase, far, text string
}

const clearLine = "\r\033[K"

func (p *progress) set(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
	p.show()
}

// The last progress stays until the migration ends.
func (p *progress) tell(far string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if far == "" {
		return
	}
	p.far = far
	if p.phase != "" {
		p.show()
	}
}

func (p *progress) show() {
	text := p.phase
	if p.far != "" {
		text += ": " + p.far
	}
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

func (p *progress) draw() {
	fmt.Fprintf(p.env.Out, "%s%s, %v", clearLine, p.text, time.Since(p.began).Round(time.Second))
}

// keepTime updates the elapsed time on a terminal until stop is called.
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
