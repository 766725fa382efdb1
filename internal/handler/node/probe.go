package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"drydock.dev/drydock/internal/contracts/nodeprobe"
)

// ReadProbe reads the result that virt-launcher wrote.
func ReadProbe(path string) (nodeprobe.Result, error) {
	var result nodeprobe.Result
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return result, fmt.Errorf("reading the node's probe: %w; 'virt-launcher probe-node' makes it", err)
	}
	if err != nil {
		return result, fmt.Errorf("reading the node's probe: %w", err)
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return result, fmt.Errorf("reading the node's probe %s: %w", path, err)
	}
	return result, nil
}

// Probe has the probe's result after its end.
type Probe struct {
	known chan struct{} // closed after found is written
	found nodeprobe.Result
}

// NewProbe returns a Probe without a result.
func NewProbe() *Probe { return &Probe{known: make(chan struct{})} }

// Found returns the result, or the zero value before it is known.
func (p *Probe) Found() nodeprobe.Result {
	select {
	case <-p.known:
		return p.found
	default:
		return nodeprobe.Result{}
	}
}

// KVM reports whether guests get it, and whether that is known.
func (p *Probe) KVM() (usable, known bool) {
	select {
	case <-p.known:
		return p.found.Use() == nodeprobe.KVM, true
	default:
		return false, false
	}
}

// Known returns when the result is known.
func (p *Probe) Known(ctx context.Context) error {
	select {
	case <-p.known:
		return nil
	case <-ctx.Done():
		return errors.New("the node's probe has not ended yet; see the log of the container probe-node")
	}
}

// Await waits for virt-launcher to write the result, in an existing folder. It must be called once.
func (p *Probe) Await(ctx context.Context, path string) error {
	found, err := awaitProbe(ctx, path, func(nodeprobe.Result) bool { return true })
	if err != nil {
		return err
	}
	p.found = found
	close(p.known)
	return nil
}

// AwaitAnother returns an error when virt-launcher has probed a starved node again and reached another verdict. All
// that follows from a probe is decided once, so virt-handler must start again. It returns nil when the first verdict is
// confirmed. It must be called after Await.
func (p *Probe) AwaitAnother(ctx context.Context, path string) error {
	if !p.found.Starved {
		return nil
	}
	found, err := awaitProbe(ctx, path, func(r nodeprobe.Result) bool { return !r.Starved || r.Use() != p.found.Use() })
	switch {
	case err != nil || found.SameVerdict(p.found):
		return err
	case found.Use() == "":
		return errors.New("the node was probed again, and no guest can run on it; virt-handler starts again")
	}
	return fmt.Errorf("the node was probed again, and guests can run with %s; virt-handler starts again", found.Use())
}

func awaitProbe(ctx context.Context, path string, suits func(nodeprobe.Result) bool) (nodeprobe.Result, error) {
	var none nodeprobe.Result
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		return none, fmt.Errorf("opening inotify: %w", err)
	}
	defer func() { _ = changes.Close() }() // nothing can be lost
	if err := changes.Add(filepath.Dir(path)); err != nil {
		return none, fmt.Errorf("watching for the node's probe: %w", err)
	}
	for {
		found, err := ReadProbe(path)
		if err == nil && suits(found) {
			return found, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return none, err
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-changes.Events:
		case err := <-changes.Errors:
			// Events were lost, so the file is read again.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return none, fmt.Errorf("watching for the node's probe: %w", err)
			}
		}
	}
}
