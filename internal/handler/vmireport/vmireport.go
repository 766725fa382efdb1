// Package vmireport writes a VMI's status from a driver's facts, and announces its changes as events.
//
// It owns the last unanswered write, and announces it when the VMI shows its effect. It must not decide when to write a
// status, and must not change one.
package vmireport

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Cluster is the used part of the API server.
type Cluster interface {
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	PatchVMI(ctx context.Context, vmi *v1.VirtualMachineInstance, patch []byte) (*v1.VirtualMachineInstance, error)
	// Event never fails or blocks.
	Event(vmi *v1.VirtualMachineInstance, eventType, reason, message string)
}

// Env has a Reporter's dependencies.
type Env struct {
	Cluster Cluster
	// Stored gets the API server's VMI after a write; nil if it is gone.
	Stored func(*v1.VirtualMachineInstance)
	// Go runs a goroutine that the owner waits for.
	Go  func(func())
	Log logr.Logger
}

// Reporter writes one VMI's status. Only one goroutine calls it.
type Reporter struct {
	env        Env
	unanswered *Changes // the last write, if the API server has not answered it
}

// NewReporter returns a Reporter that has written nothing yet.
func NewReporter(env Env) *Reporter { return &Reporter{env: env} }

// Changes is a status to write.
type Changes struct {
	from  *v1.VirtualMachineInstance
	to    v1.VirtualMachineInstanceStatus
	patch []byte // nil for no change
	err   error
}

// New returns the changes that the facts require.
func New(from *v1.VirtualMachineInstance, facts vmihandler.Facts) *Changes {
	c := &Changes{from: from, to: vmihandler.Status(from, facts)}
	c.patch, c.err = vmihandler.Patch(from, c.to)
	return c
}

// Due reports whether there is a change, or an error to report.
func (c *Changes) Due() bool { return c.patch != nil || c.err != nil }

// Writable reports whether there is a change and no error.
func (c *Changes) Writable() bool { return c.err == nil && c.patch != nil }

// Write writes the status and announces its changes. After a conflict, it reads the VMI again for the next step.
func (r *Reporter) Write(ctx context.Context, c *Changes) error {
	if c.err != nil {
		return c.err
	}
	r.AnnounceUnanswered(c.from)
	now, err := r.env.Cluster.PatchVMI(ctx, c.from, c.patch)
	refused, before := err, r.unanswered
	r.unanswered = nil
	switch {
	case err == nil:
		r.announce(c)
	case apierrors.IsNotFound(err):
		now = nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The API server reports a failed JSON patch test as Invalid.
		r.unanswered = before
		now, err = r.env.Cluster.VMI(ctx, c.from.Namespace, c.from.Name)
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("reading VMI %s/%s: %w", c.from.Namespace, c.from.Name, err)
		}
		if now != nil && now.UID == c.from.UID && now.ResourceVersion == c.from.ResourceVersion {
			return fmt.Errorf("patching the status of VMI %s/%s: the API server refuses it although nobody else has changed the VMI: %w",
				c.from.Namespace, c.from.Name, refused)
		}
	default:
		r.unanswered = c
		return fmt.Errorf("patching the status of VMI %s/%s: %w", c.from.Namespace, c.from.Name, err)
	}
	r.env.Stored(now)
	return nil
}

// AnnounceUnanswered announces an unanswered write when the VMI shows its effect. A VMI of the same version has not
// changed yet. The write never has an effect if somebody else changed the VMI first.
func (r *Reporter) AnnounceUnanswered(now *v1.VirtualMachineInstance) {
	c := r.unanswered
	if c == nil || now == nil || now.ResourceVersion == c.from.ResourceVersion {
		return
	}
	r.unanswered = nil
	if left, err := vmihandler.Patch(now, c.to); err == nil && left == nil {
		r.announce(c)
	}
}

// progressPatience bounds the write of a migration's progress. It is shorter than the interval: only one is in flight.
const progressPatience = 4 * time.Second

// WriteProgress writes a migration's progress in the background: QEMU may soon wait for this driver, and the guest for
// QEMU (decision 321). A failed write is not repeated, because new figures come soon.
func (r *Reporter) WriteProgress(ctx context.Context, c *Changes) {
	r.env.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, progressPatience)
		defer cancel()
		now, err := r.env.Cluster.PatchVMI(ctx, c.from, c.patch)
		if err != nil {
			r.env.Log.V(1).Info("the progress of the migration was not written", "reason", err.Error())
			return
		}
		r.env.Stored(now)
	})
}
