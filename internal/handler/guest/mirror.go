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
)

// Job is the copying of a disk as QEMU tells of it. It stays when it has ended.
type Job struct {
	ID, Status, Error string
	// Done and Total are in bytes.
	Done, Total int64
}

// concluded is the status of a job that has ended.
const concluded = "concluded"

// maxJobs bounds what is kept of QEMU's answer: it has one job for each disk.
const maxJobs = 256

// jobInfo is a job as QEMU tells of it.
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

// copiesOf are the jobs that copy disks.
func copiesOf(list []jobInfo) []Job {
	var jobs []Job
	for _, j := range list {
		if machine.IsMirrorJob(j.ID) && len(jobs) < maxJobs {
			jobs = append(jobs, Job{
				ID: j.ID, Status: j.Status[:min(len(j.Status), maxStatus)], Error: short(j.Error),
				Done: int64(figure(j.Done)), Total: int64(figure(j.Total)),
			})
		}
	}
	return jobs
}

// queryJobs asks for the jobs that copy disks.
func (g *Guest) queryJobs(ctx context.Context) ([]Job, error) {
	var list []jobInfo
	if err := g.monitor.ExecuteAll(ctx, listJobs(&list)); err != nil {
		return nil, err
	}
	return copiesOf(list), nil
}

// copying reports whether QEMU is about to change a job by itself.
func copying(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return j.Status != concluded })
}

// Mirroring is how disks are copied to a target.
type Mirroring struct {
	Migration types.UID
	// Socket is where QEMU connects to, as it sees it.
	Socket string
	Disks  []machine.Mirror
	// Bandwidth is the most that is copied in a second, in bytes, of all disks together; 0 for no limit.
	Bandwidth int64
}

// ErrEnding is of copies that have been told to end, and have not yet.
var ErrEnding = errors.New("QEMU has not ended the copies of an earlier migration yet")

// Mirror has QEMU copy disks to the target, and then what the guest writes to them. Those that it copies
// already are left alone. What QEMU refuses is a *Refusal.
func (g *Guest) Mirror(ctx context.Context, m Mirroring) error {
	return g.exclusive(ctx, func(ctx context.Context, _ observation) error {
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
			if err := g.mirror(ctx, &m, d); err != nil {
				return refusedCopy(d, err)
			}
		}
		return nil
	})
}

func refusedCopy(d *machine.Mirror, err error) error {
	var no *qmp.Error
	if errors.As(err, &no) {
		return &Refusal{fmt.Sprintf("volume %s cannot be copied to the target: QEMU reports %s", d.Volume, strconv.QuoteToASCII(short(no.Desc)))}
	}
	return fmt.Errorf("copying volume %s to the target: %w", d.Volume, err)
}

// mirror begins to copy one disk. The job stays when it has ended, so that the next virt-handler
// finds out how.
func (g *Guest) mirror(ctx context.Context, m *Mirroring, d *machine.Mirror) error {
	if err := g.execute(ctx, "blockdev-add", map[string]any{
		"driver": "nbd", "node-name": d.Copy, "export": d.Export(), "server": map[string]any{"type": "unix", "path": m.Socket},
	}); err != nil {
		return err
	}
	target, err := g.fit(ctx, d)
	if err == nil {
		err = g.beginCopy(ctx, m, d, target)
	}
	if err != nil {
		return errors.Join(err, g.dropCopy(ctx, d, target))
	}
	return nil
}

// dropCopy removes the way of one disk to the target, where target is on top of it.
func (g *Guest) dropCopy(ctx context.Context, d *machine.Mirror, target string) error {
	var err error
	if target == d.Slice && target != "" {
		err = g.execute(ctx, "blockdev-del", map[string]any{"node-name": target})
	}
	return errors.Join(err, g.execute(ctx, "blockdev-del", map[string]any{"node-name": d.Copy}))
}

// beginCopy has QEMU copy behind the guest: a guest never waits for the target (decision 303).
func (g *Guest) beginCopy(ctx context.Context, m *Mirroring, d *machine.Mirror, target string) error {
	sync, speed := "top", int64(0)
	if d.Whole {
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

// fit returns the node that a disk is copied to: the target's disk has the same size. An image of the same
// name may be another one there, and of a larger claim only as much is written to as the disk has.
func (g *Guest) fit(ctx context.Context, d *machine.Mirror) (target string, err error) {
	sizes, err := g.nodes(ctx)
	if err != nil {
		return "", err
	}
	here, there := sizes[d.Node], sizes[d.Copy]
	switch {
	case here == there:
		return d.Copy, nil
	case d.Slice == "":
		return "", &Refusal{fmt.Sprintf("volume %s has %d bytes, and %d at the target: the image there is another one", d.Volume, here, there)}
	case here > there:
		return "", &Refusal{fmt.Sprintf("volume %s has %d bytes, and only %d on its new claim: name a larger one", d.Volume, here, there)}
	}
	err = g.execute(ctx, "blockdev-add", map[string]any{"driver": "raw", "node-name": d.Slice, "file": d.Copy, "offset": 0, "size": here})
	if err != nil {
		return "", err
	}
	return d.Slice, nil
}

// nodes are the sizes of the block nodes, by name.
func (g *Guest) nodes(ctx context.Context) (map[string]int64, error) {
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

// FinishMirrors has the copies of a migration end with all that was written. The guest must stand
// still: what it writes afterwards stays here.
func (g *Guest) FinishMirrors(ctx context.Context, migration types.UID) error {
	return g.exclusive(ctx, func(ctx context.Context, _ observation) error {
		jobs, err := g.queryJobs(ctx)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if !ofMigration(j.ID, migration) || j.Status == concluded {
				continue
			}
			if err := g.execute(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": false}); err != nil {
				return fmt.Errorf("finishing the copies of the guest's disks: %w", err)
			}
		}
		return nil
	})
}

func ofMigration(job string, migration types.UID) bool {
	return strings.HasPrefix(job, (&machine.Mirror{}).Job(migration))
}

// EndMirrors ends all copies, however far they are, and removes what is left of them. It gives
// ErrEnding as long as there is something left.
func (g *Guest) EndMirrors(ctx context.Context) error {
	return g.exclusive(ctx, func(ctx context.Context, _ observation) error { return g.endMirrors(ctx, "") })
}

// endMirrors ends the copies of all migrations but one.
func (g *Guest) endMirrors(ctx context.Context, but types.UID) error {
	jobs, err := g.queryJobs(ctx)
	if err != nil {
		return err
	}
	kept := false
	var ending error
	for _, j := range jobs {
		switch {
		case but != "" && ofMigration(j.ID, but):
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
	return g.dropCopies(ctx)
}

// hasCopied reports whether QEMU has copied disks, as far as is known.
func (g *Guest) hasCopied() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known.copies || len(g.known.jobs) > 0
}

// dropCopies removes the ways to the target, which no job uses any more: a guest that goes on must not
// depend on one.
func (g *Guest) dropCopies(ctx context.Context) error {
	nodes, err := g.nodes(ctx)
	if err != nil {
		return err
	}
	copies := slices.DeleteFunc(slices.Collect(maps.Keys(nodes)), func(name string) bool { return !machine.IsMirrorCopy(name) })
	// What is on top of another goes first.
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

// Export has a target that waits for its guest take the content of disks on a socket, as QEMU sees
// it. Those that it takes already are left alone.
func (g *Guest) Export(ctx context.Context, socket string, disks []machine.Mirror) error {
	if len(disks) == 0 {
		return nil
	}
	return g.exclusive(ctx, func(ctx context.Context, o observation) error {
		if o.migration.RunState != runstate.InMigrate {
			return nil
		}
		exports, err := g.exports(ctx)
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
				// The server may have been there before, started by an earlier virt-handler.
				return fmt.Errorf("having QEMU take the content of volume %s: %w", d.Volume, errors.Join(err, started))
			}
		}
		return nil
	})
}

// exports are what QEMU lets others write to.
func (g *Guest) exports(ctx context.Context) (map[string]bool, error) {
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

// endExports has nobody but the guest write to its disks from now on.
func (g *Guest) endExports(ctx context.Context) error {
	exports, err := g.exports(ctx)
	if err != nil || len(exports) == 0 {
		return err
	}
	if err := g.execute(ctx, "nbd-server-stop", nil); err != nil {
		return fmt.Errorf("closing the guest's disks to the source: %w", err)
	}
	return nil
}
