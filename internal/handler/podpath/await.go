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

// Watcher waits for files to appear, with one inotify instance for all
// waiters: a user may have few of them (128 by default).
type Watcher struct {
	inotify *fsnotify.Watcher

	mu sync.Mutex
	// changed is closed, and replaced, at every change in a watched folder.
	changed chan struct{}
	// users counts the waiters of each watched folder.
	users map[string]int
	err   error
}

// NewWatcher opens the inotify instance. Run must run for Await to return.
func NewWatcher() (*Watcher, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("opening inotify: %w", err)
	}
	return &Watcher{inotify: inotify, changed: make(chan struct{}), users: map[string]int{}}, nil
}

// Run passes the kernel's events on until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	// The kernel lets go of the watches with it; nothing can be lost.
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
			// An overflow lost events: everyone looks again.
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

// Await returns when base/rel exists. base must exist; the folders of rel may
// appear one by one. The last folder of rel may be writable by guests: only
// its entries' names are looked at.
func (w *Watcher) Await(ctx context.Context, base, rel string) error {
	watched := ""
	defer func() { w.release(watched) }()
	for {
		changed, err := w.current()
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
		// Watched anew at every look: a folder that was removed and made again
		// has lost its watch.
		if err := w.watch(deepest, watched == ""); err != nil {
			if errors.Is(err, fs.ErrNotExist) && deepest != base {
				continue // it went between the look and the watch
			}
			return err
		}
		watched = deepest
		// What came before the watch gives no event.
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

func (w *Watcher) current() (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed, w.err
}

// watch adds the folder; count makes the caller one of its users.
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
	// The only error is that the folder, and the watch with it, is gone.
	_ = w.inotify.Remove(folder)
}

// walk goes down from base along rel and returns the deepest folder that
// exists, or found when all of rel does.
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
