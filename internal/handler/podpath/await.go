package podpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Watcher shares one inotify instance: a user may have few (128 by default).
type Watcher struct {
	inotify *fsnotify.Watcher

	mu      sync.Mutex
	changed chan struct{}
	users   map[string]int
	err     error
}

// NewWatcher opens the inotify instance. Await needs a running Run.
func NewWatcher() (*Watcher, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("opening inotify: %w", err)
	}
	return &Watcher{inotify: inotify, changed: make(chan struct{}), users: map[string]int{}}, nil
}

// Run serves the waiters until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	defer func() { _ = w.inotify.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.inotify.Events:
			if !ok {
				return errors.New("inotify has ended")
			}
			if event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
				w.wake(nil)
			}
		case err, ok := <-w.inotify.Errors:
			if !ok {
				return errors.New("inotify has ended")
			}
			// An overflow has lost events: all waiters look again.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.wake(fmt.Errorf("reading inotify: %w", err))
				return err
			}
			w.wake(nil)
		}
	}
}

func (w *Watcher) wake(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.changed)
	w.changed = make(chan struct{})
}

// Await returns when base/rel exists. base must exist; the folders of rel may appear one by one. Guests may write to
// the last one: Await only looks at names.
func (w *Watcher) Await(ctx context.Context, base, rel string) error {
	watched := ""
	defer func() { w.release(watched) }()
	for {
		w.mu.Lock()
		changed, err := w.changed, w.err
		w.mu.Unlock()
		if err != nil {
			return err
		}
		deepest, found, err := walk(base, rel)
		if err != nil || found {
			return err
		}
		if deepest != watched {
			w.release(watched)
			watched = ""
		}
		// A folder that was removed and made again has lost its watch.
		if err := w.watch(deepest, watched == ""); err != nil {
			if errors.Is(err, fs.ErrNotExist) && deepest != base {
				continue // it was removed meanwhile
			}
			return err
		}
		watched = deepest
		// A change before the watch gives no event.
		again, found, err := walk(base, rel)
		if err != nil || found {
			return err
		}
		if again != deepest {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// count makes the caller a user of the folder.
func (w *Watcher) watch(folder string, count bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.inotify.Add(folder); err != nil {
		return fmt.Errorf("watching folder %s: %w", folder, err)
	}
	if count {
		w.users[folder]++
	}
	return nil
}

func (w *Watcher) release(folder string) {
	if folder == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users[folder]--
	if w.users[folder] > 0 {
		return
	}
	delete(w.users, folder)
	// The only possible error is that the folder is gone, and the watch with it.
	_ = w.inotify.Remove(folder)
}

// walk returns the deepest existing folder from base along rel, and whether all of rel exists.
func walk(base, rel string) (deepest string, found bool, err error) {
	deepest = base
	for part := range strings.SplitSeq(filepath.Clean(rel), string(filepath.Separator)) {
		next := filepath.Join(deepest, part)
		_, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return deepest, false, nil
		}
		if err != nil {
			return deepest, false, fmt.Errorf("looking for %s: %w", next, err)
		}
		deepest = next
	}
	return deepest, true, nil
}
