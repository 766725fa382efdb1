// Package diskcopy copies disks in a migration: the source's QEMU mirrors them to the disks that the target's QEMU exports.
//
// QEMU keeps the jobs, also for the next virt-handler. The package must not decide when a copy begins or ends, and knows
// nothing of the guest's own handover.
package diskcopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Copies are the disk copies of one QEMU. Only its owner's goroutine commands them.
type Copies struct{ guest *guest.Guest }

// Of returns the disk copies of a QEMU.
func Of(g *guest.Guest) Copies { return Copies{g} }

// Mirroring has the parameters of disk copies.
type Mirroring struct {
	Migration types.UID
	Socket    string // a path of QEMU's
	Disks     []machine.Mirror
	Bandwidth int64 // of all disks together, in bytes per second; 0 for no limit
}

// ErrEnding means that canceled copies have not ended yet.
var ErrEnding = errors.New("QEMU has not ended the copies of an earlier migration yet")

// Mirror makes QEMU copy disks, and then the guest's later writes, to the target. It skips disks that have a copy. It
// returns a *power.Refusal if QEMU refuses.
func (c Copies) Mirror(ctx context.Context, m Mirroring) error {
	return c.guest.WithCurrentState(ctx, func(ctx context.Context, _ guest.Observation) error {
		c.guest.ExpectCopies()
		if err := c.endMirrors(ctx, m.Migration); err != nil {
			return err
		}
		jobs, err := guest.QueryJobs(ctx, c.guest.Monitor())
		if err != nil {
			return err
		}
		for i := range m.Disks {
			d := &m.Disks[i]
			if slices.ContainsFunc(jobs, func(j guest.Job) bool { return j.ID == d.Job(m.Migration) }) {
				continue
			}
			if err := c.startMirror(ctx, &m, d); err != nil {
				var no *qmp.Error
				if errors.As(err, &no) {
					return &power.Refusal{Message: fmt.Sprintf("volume %s cannot be copied to the target: QEMU reports %s", d.Volume, strconv.QuoteToASCII(guest.Truncate(no.Desc)))}
				}
				return fmt.Errorf("copying volume %s to the target: %w", d.Volume, err)
			}
		}
		return nil
	})
}

// The job remains after its end, for the next virt-handler. QEMU counts holes against the bandwidth unless the nodes of the
// copy may discard, and sends zeros that were written unless it looks for them (decision 303).
func (c Copies) startMirror(ctx context.Context, m *Mirroring, d *machine.Mirror) error {
	if err := c.guest.Execute(ctx, "blockdev-add", map[string]any{
		"driver": "nbd", "node-name": d.Copy, "export": d.Export(), "server": map[string]any{"type": "unix", "path": m.Socket},
		"discard": "unmap", "detect-zeroes": "unmap",
	}); err != nil {
		return err
	}
	target, err := c.prepareCopyTarget(ctx, d)
	if err == nil {
		err = c.sendBlockdevMirror(ctx, m, d, target)
	}
	if err == nil {
		return nil
	}
	if target == d.Slice && target != "" {
		err = errors.Join(err, c.guest.Execute(ctx, "blockdev-del", map[string]any{"node-name": target}))
	}
	return errors.Join(err, c.guest.Execute(ctx, "blockdev-del", map[string]any{"node-name": d.Copy}))
}

// sendBlockdevMirror copies in the background: a guest never waits for the target (decision 303). "full" copies an
// image and those below it, but fills the target with zeros first. A claim has no image below, so "top" copies all of it.
func (c Copies) sendBlockdevMirror(ctx context.Context, m *Mirroring, d *machine.Mirror, target string) error {
	sync, speed := "top", int64(0)
	if d.Whole && d.Slice == "" {
		sync = "full"
	}
	if m.Bandwidth > 0 {
		speed = max(1, m.Bandwidth/int64(len(m.Disks)))
	}
	return c.guest.Execute(ctx, "blockdev-mirror", map[string]any{
		"job-id": d.Job(m.Migration), "speed": speed, "device": d.Node, "target": target, "sync": sync, "copy-mode": "background",
		"on-source-error": "report", "on-target-error": "report", "auto-dismiss": false,
	})
}

// prepareCopyTarget returns the block node for the copy, which has the disk's size: of a larger claim only a part is
// written, and an image of another size is refused as another image.
func (c Copies) prepareCopyTarget(ctx context.Context, d *machine.Mirror) (target string, err error) {
	sizes, err := c.nodeSizes(ctx)
	if err != nil {
		return "", err
	}
	here, there := sizes[d.Node], sizes[d.Copy]
	switch {
	case here == there:
		return d.Copy, nil
	case d.Slice == "":
		return "", &power.Refusal{Message: fmt.Sprintf("volume %s has %d bytes, and %d at the target: the image there is another one", d.Volume, here, there)}
	case here > there:
		return "", &power.Refusal{Message: fmt.Sprintf("volume %s has %d bytes, and only %d on its new claim: name a larger one", d.Volume, here, there)}
	}
	err = c.guest.Execute(ctx, "blockdev-add", map[string]any{"driver": "raw", "node-name": d.Slice, "file": d.Copy, "offset": 0, "size": here, "discard": "unmap"})
	if err != nil {
		return "", err
	}
	return d.Slice, nil
}

// nodeSizes returns sizes in bytes, by block node.
func (c Copies) nodeSizes(ctx context.Context) (map[string]int64, error) {
	var list []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		} `json:"image"`
	}
	if err := c.guest.Monitor().Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &list); err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, n := range list {
		sizes[n.Name] = n.Image.Size
	}
	return sizes, nil
}

// FinishMirrors completes a migration's copies. The guest must be stopped: later writes would stay here.
func (c Copies) FinishMirrors(ctx context.Context, migration types.UID) error {
	return c.guest.WithCurrentState(ctx, func(ctx context.Context, _ guest.Observation) error {
		jobs, err := guest.QueryJobs(ctx, c.guest.Monitor())
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if !isJobOf(j.ID, migration) || j.Status == guest.Concluded {
				continue
			}
			if err := c.guest.Execute(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": false}); err != nil {
				return fmt.Errorf("finishing the copies of the guest's disks: %w", err)
			}
		}
		return nil
	})
}

func isJobOf(job string, migration types.UID) bool {
	return strings.HasPrefix(job, (&machine.Mirror{}).Job(migration))
}

// EndMirrors cancels all copies and removes their remains. It returns ErrEnding until nothing is left.
func (c Copies) EndMirrors(ctx context.Context) error {
	return c.guest.WithCurrentState(ctx, func(ctx context.Context, _ guest.Observation) error { return c.endMirrors(ctx, "") })
}

func (c Copies) endMirrors(ctx context.Context, but types.UID) error {
	jobs, err := guest.QueryJobs(ctx, c.guest.Monitor())
	if err != nil {
		return err
	}
	kept := false
	var ending error
	for _, j := range jobs {
		switch {
		case but != "" && isJobOf(j.ID, but):
			kept = true
			continue
		case j.Status == guest.Concluded:
			err = c.guest.Execute(ctx, "job-dismiss", map[string]any{"id": j.ID})
		default:
			ending = ErrEnding
			err = c.guest.Execute(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": true})
		}
		if err != nil {
			return fmt.Errorf("ending the copy of a disk: %w", err)
		}
	}
	if ending != nil || kept {
		return ending
	}
	return c.RemoveNodes(ctx)
}

// RemoveNodes removes the block nodes of all copies, whose jobs must have ended. A guest that stays must not depend on
// block nodes that lead to the target.
func (c Copies) RemoveNodes(ctx context.Context) error {
	nodes, err := c.nodeSizes(ctx)
	if err != nil {
		return err
	}
	copies := slices.DeleteFunc(slices.Collect(maps.Keys(nodes)), func(name string) bool { return !machine.IsMirrorCopy(name) })
	// A slice goes before the copy below it.
	slices.SortFunc(copies, func(a, b string) int {
		if top := machine.IsMirrorSlice(a); top != machine.IsMirrorSlice(b) {
			if top {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range copies {
		if err := c.guest.Execute(ctx, "blockdev-del", map[string]any{"node-name": name}); err != nil {
			return fmt.Errorf("removing the way of a disk's copy to the target: %w", err)
		}
	}
	return nil
}

// Export makes a waiting target accept the content of disks on a socket of QEMU's. It skips exported disks.
func (c Copies) Export(ctx context.Context, socket string, disks []machine.Mirror) error {
	if len(disks) == 0 {
		return nil
	}
	return c.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		if o.Migration.RunState != runstate.InMigrate {
			return nil
		}
		exports, err := c.queryExports(ctx)
		if err != nil {
			return err
		}
		address := map[string]any{"type": "unix", "data": map[string]any{"path": socket}}
		started := c.guest.Execute(ctx, "nbd-server-start", map[string]any{"addr": address})
		for i := range disks {
			d := &disks[i]
			if exports[d.Export()] {
				continue
			}
			if err := c.guest.Execute(ctx, "block-export-add", map[string]any{
				"type": "nbd", "id": d.Export(), "name": d.Export(), "node-name": d.Node, "writable": true,
			}); err != nil {
				return fmt.Errorf("having QEMU take the content of volume %s: %w", d.Volume, errors.Join(err, started))
			}
		}
		return nil
	})
}

func (c Copies) queryExports(ctx context.Context) (map[string]bool, error) {
	var list []struct {
		ID string `json:"id"`
	}
	if err := c.guest.Monitor().Execute(ctx, "query-block-exports", nil, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range list {
		names[e.ID] = true
	}
	return names, nil
}

// StopExports ends the target's exports: only the guest writes to its disks from now on.
func (c Copies) StopExports(ctx context.Context) error {
	exports, err := c.queryExports(ctx)
	if err != nil || len(exports) == 0 {
		return err
	}
	if err := c.guest.Execute(ctx, "nbd-server-stop", nil); err != nil {
		return fmt.Errorf("closing the guest's disks to the source: %w", err)
	}
	return nil
}
