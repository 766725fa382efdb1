package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// Job is a disk copy by QEMU, listed also after its end.
type Job struct {
	ID, Status, Error string
	// Done and Total are in bytes.
	Done, Total int64
}

const concluded = "concluded"

// maxJobs is far more than one for each disk.
const maxJobs = 256

type jobInfo struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Error  string  `json:"error"`
	Done   float64 `json:"current-progress"`
	Total  float64 `json:"total-progress"`
}

func listJobs(list *[]jobInfo) qmp.Command {
	return qmp.Command{Name: "query-jobs", Result: list}
}

func copiesOf(list []jobInfo) []Job {
	var jobs []Job
	for _, j := range list {
		if machine.IsMirrorJob(j.ID) && len(jobs) < maxJobs {
			jobs = append(jobs, Job{
				ID: j.ID, Status: j.Status[:min(len(j.Status), maxStatus)], Error: truncate(j.Error),
				Done: int64(clamp(j.Done)), Total: int64(clamp(j.Total)),
			})
		}
	}
	return jobs
}

func (g *Guest) queryJobs(ctx context.Context) ([]Job, error) {
	var list []jobInfo
	if err := g.monitor.ExecuteAll(ctx, listJobs(&list)); err != nil {
		return nil, err
	}
	return copiesOf(list), nil
}

// hasActiveJob reports whether QEMU will change a job without another command.
func hasActiveJob(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return j.Status != concluded })
}

// Mirroring has the parameters of disk copies.
type Mirroring struct {
	Migration types.UID
	// Socket is a path of QEMU's.
	Socket string
	Disks  []machine.Mirror
	// Bandwidth is for all disks together, in bytes per second; 0 for no limit.
	Bandwidth int64
}

// ErrEnding means that canceled copies have not ended yet.
var ErrEnding = errors.New("QEMU has not ended the copies of an earlier migration yet")

// Mirror makes QEMU copy disks to the target, and then the guest's later writes. It skips disks that are already being
// copied. It returns a *power.Refusal if QEMU refuses.
func (g *Guest) Mirror(ctx context.Context, m Mirroring) error {
	return g.withCurrentState(ctx, func(ctx context.Context, _ observation) error {
		g.mu.Lock()
		g.known.copies = true
		g.mu.Unlock()
		if err := g.endMirrors(ctx, m.Migration); err != nil {
			return err
		}
		jobs, err := g.queryJobs(ctx)
		if err != nil {
			return err
		}
		for i := range m.Disks {
			d := &m.Disks[i]
			if slices.ContainsFunc(jobs, func(j Job) bool { return j.ID == d.Job(m.Migration) }) {
				continue
			}
			if err := g.startMirror(ctx, &m, d); err != nil {
				var no *qmp.Error
				if errors.As(err, &no) {
					return &power.Refusal{Message: fmt.Sprintf("volume %s cannot be copied to the target: QEMU reports %s", d.Volume, strconv.QuoteToASCII(truncate(no.Desc)))}
				}
				return fmt.Errorf("copying volume %s to the target: %w", d.Volume, err)
			}
		}
		return nil
	})
}

// The job remains after its end, for the next virt-handler. QEMU counts unsent zeros against the bandwidth unless the
// nodes of the copy may discard (decision 303).
func (g *Guest) startMirror(ctx context.Context, m *Mirroring, d *machine.Mirror) error {
	if err := g.execute(ctx, "blockdev-add", map[string]any{
		"driver": "nbd", "node-name": d.Copy, "export": d.Export(), "server": map[string]any{"type": "unix", "path": m.Socket}, "discard": "unmap",
	}); err != nil {
		return err
	}
	target, err := g.prepareCopyTarget(ctx, d)
	if err == nil {
		err = g.sendBlockdevMirror(ctx, m, d, target)
	}
	if err == nil {
		return nil
	}
	if target == d.Slice && target != "" {
		err = errors.Join(err, g.execute(ctx, "blockdev-del", map[string]any{"node-name": target}))
	}
	return errors.Join(err, g.execute(ctx, "blockdev-del", map[string]any{"node-name": d.Copy}))
}

// sendBlockdevMirror copies in the background: a guest never waits for the target (decision 303). "full" copies an
// image and those below it, after QEMU has filled the target with zeros. A claim has no image below, so "top" copies
// all of it, without that.
func (g *Guest) sendBlockdevMirror(ctx context.Context, m *Mirroring, d *machine.Mirror, target string) error {
	sync, speed := "top", int64(0)
	if d.Whole && d.Slice == "" {
		sync = "full"
	}
	if m.Bandwidth > 0 {
		speed = max(1, m.Bandwidth/int64(len(m.Disks)))
	}
	return g.execute(ctx, "blockdev-mirror", map[string]any{
		"job-id": d.Job(m.Migration), "speed": speed, "device": d.Node, "target": target, "sync": sync, "copy-mode": "background",
		"on-source-error": "report", "on-target-error": "report", "auto-dismiss": false,
	})
}

// prepareCopyTarget returns the block node to copy to, which has the disk's size: an image of another size is another
// image, and of a larger claim only the disk's size is written.
func (g *Guest) prepareCopyTarget(ctx context.Context, d *machine.Mirror) (target string, err error) {
	sizes, err := g.nodeSizes(ctx)
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
	err = g.execute(ctx, "blockdev-add", map[string]any{"driver": "raw", "node-name": d.Slice, "file": d.Copy, "offset": 0, "size": here, "discard": "unmap"})
	if err != nil {
		return "", err
	}
	return d.Slice, nil
}

// nodeSizes returns sizes in bytes, by block node.
func (g *Guest) nodeSizes(ctx context.Context) (map[string]int64, error) {
	var list []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		} `json:"image"`
	}
	if err := g.monitor.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &list); err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, n := range list {
		sizes[n.Name] = n.Image.Size
	}
	return sizes, nil
}

// FinishMirrors completes a migration's copies. The guest must be stopped: later writes would stay here.
func (g *Guest) FinishMirrors(ctx context.Context, migration types.UID) error {
	return g.withCurrentState(ctx, func(ctx context.Context, _ observation) error {
		jobs, err := g.queryJobs(ctx)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if !isJobOf(j.ID, migration) || j.Status == concluded {
				continue
			}
			if err := g.execute(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": false}); err != nil {
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
func (g *Guest) EndMirrors(ctx context.Context) error {
	return g.withCurrentState(ctx, func(ctx context.Context, _ observation) error { return g.endMirrors(ctx, "") })
}

func (g *Guest) endMirrors(ctx context.Context, but types.UID) error {
	jobs, err := g.queryJobs(ctx)
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
		case j.Status == concluded:
			err = g.execute(ctx, "job-dismiss", map[string]any{"id": j.ID})
		default:
			ending = ErrEnding
			err = g.execute(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": true})
		}
		if err != nil {
			return fmt.Errorf("ending the copy of a disk: %w", err)
		}
	}
	if ending != nil || kept {
		return ending
	}
	return g.removeAllCopyNodes(ctx)
}

// A guest that continues here must not depend on block nodes that lead to the target. Their jobs must have ended.
func (g *Guest) removeAllCopyNodes(ctx context.Context) error {
	nodes, err := g.nodeSizes(ctx)
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
		if err := g.execute(ctx, "blockdev-del", map[string]any{"node-name": name}); err != nil {
			return fmt.Errorf("removing the way of a disk's copy to the target: %w", err)
		}
	}
	return nil
}

// Export makes a target that waits for its guest accept the content of disks on a socket of QEMU's. It skips exported
// disks.
func (g *Guest) Export(ctx context.Context, socket string, disks []machine.Mirror) error {
	if len(disks) == 0 {
		return nil
	}
	return g.withCurrentState(ctx, func(ctx context.Context, o observation) error {
		if o.migration.RunState != runstate.InMigrate {
			return nil
		}
		exports, err := g.queryExports(ctx)
		if err != nil {
			return err
		}
		address := map[string]any{"type": "unix", "data": map[string]any{"path": socket}}
		started := g.execute(ctx, "nbd-server-start", map[string]any{"addr": address})
		for i := range disks {
			d := &disks[i]
			if exports[d.Export()] {
				continue
			}
			if err := g.execute(ctx, "block-export-add", map[string]any{
				"type": "nbd", "id": d.Export(), "name": d.Export(), "node-name": d.Node, "writable": true,
			}); err != nil {
				return fmt.Errorf("having QEMU take the content of volume %s: %w", d.Volume, errors.Join(err, started))
			}
		}
		return nil
	})
}

func (g *Guest) queryExports(ctx context.Context) (map[string]bool, error) {
	var list []struct {
		ID string `json:"id"`
	}
	if err := g.monitor.Execute(ctx, "query-block-exports", nil, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range list {
		names[e.ID] = true
	}
	return names, nil
}

// From now on only the guest writes to its disks.
func (g *Guest) stopNBDServer(ctx context.Context) error {
	exports, err := g.queryExports(ctx)
	if err != nil || len(exports) == 0 {
		return err
	}
	if err := g.execute(ctx, "nbd-server-stop", nil); err != nil {
		return fmt.Errorf("closing the guest's disks to the source: %w", err)
	}
	return nil
}
