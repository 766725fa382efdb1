package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// Store is the set of all disks.
type Store struct {
	// Disks returns the disks' folders by name.
	Disks func() (map[string]string, error)
	// Hold freezes a volume during a copy. If release fails, the copy is invalid. Hold is nil for
	// volumes without writers.
	Hold func(context.Context, Volume) (release func() error, err error)
}

// Of returns a cluster's store. Nodes may be added, so it reads the record each time.
func Of(name, dir string) Store {
	return Store{Disks: func() (map[string]string, error) {
		c, found, err := layout.Load(name, dir)
		if err == nil && !found {
			err = fmt.Errorf("reading the cluster's record: %s is gone", c.Record())
		}
		return c.Disks(), err
	}}
}

// On returns the folder of a disk.
func (s Store) On(disk string) (string, error) {
	disks, err := s.Disks()
	if err != nil {
		return "", err
	}
	root, ok := disks[disk]
	if !ok {
		return "", fmt.Errorf("looking for the disk %q: %w", disk, ErrNotFound)
	}
	return root, nil
}

// Volume reads a volume's record.
func (s Store) Volume(id string) (Volume, error) { return s.read(volumes, id) }

// Snapshot reads a snapshot's record.
func (s Store) Snapshot(id string) (Volume, error) { return s.read(snapshots, id) }

func (s Store) read(shelf, id string) (Volume, error) {
	disk, name, ok := ParseID(id)
	if !ok {
		return Volume{}, fmt.Errorf("reading %q: %w", id, ErrNotFound)
	}
	root, err := s.On(disk)
	if err != nil {
		return Volume{}, err
	}
	return readRecord(filepath.Join(root, shelf, name))
}

func readRecord(dir string) (v Volume, err error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("reading %s: %w", filepath.Base(dir), ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("reading a volume's record: %w", err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("reading the record in %s: %w", dir, err)
	}
	return v, nil
}

func writeRecord(dir string, v Volume) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a volume's record: %w", err)
	}
	return layout.WriteFile(filepath.Join(dir, recordName), append(data, '\n'), 0o600)
}

// Snapshots lists all snapshots, sorted by ID.
func (s Store) Snapshots() ([]Volume, error) {
	disks, err := s.Disks()
	if err != nil {
		return nil, err
	}
	var all []Volume
	for _, root := range disks {
		entries, err := os.ReadDir(filepath.Join(root, snapshots))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing snapshots: %w", err)
		}
		for _, entry := range entries {
			v, err := readRecord(filepath.Join(root, snapshots, entry.Name()))
			if err == nil && !strings.HasPrefix(entry.Name(), ".") {
				all = append(all, v)
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID() < all[j].ID() })
	return all, nil
}

// Names are unique over all disks: the first call may have chosen another disk.
func (s Store) named(shelf, name string) (Volume, error) {
	if !validName.MatchString(name) {
		return Volume{}, fmt.Errorf("checking the name %q: it must be letters, digits, dots, hyphens and underscores", name)
	}
	disks, err := s.Disks()
	if err != nil {
		return Volume{}, err
	}
	for _, root := range disks {
		v, err := readRecord(filepath.Join(root, shelf, name))
		if !errors.Is(err, ErrNotFound) {
			return v, err
		}
	}
	return Volume{}, fmt.Errorf("looking for %s: %w", name, ErrNotFound)
}

// Free is in bytes. Files are sparse and disks may share a filesystem, so it is no reservation.
func (s Store) Free(disk string) (int64, error) {
	root, err := s.On(disk)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return 0, fmt.Errorf("making the disk %s: %w", disk, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return 0, fmt.Errorf("asking for the free space of disk %s: %w", disk, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Emptiest returns the node disk with the most free space, the first of equal ones.
func (s Store) Emptiest() (string, error) {
	disks, err := s.Disks()
	if err != nil {
		return "", err
	}
	best, most := "", int64(-1)
	for _, disk := range slices.Sorted(maps.Keys(disks)) {
		if disk == Shared {
			continue
		}
		free, err := s.Free(disk)
		if err != nil {
			return "", err
		}
		if free > most {
			best, most = disk, free
		}
	}
	if best == "" {
		return "", fmt.Errorf("choosing a disk: %w: there is no node", ErrNoSpace)
	}
	return best, nil
}

// Create creates a volume, or returns the existing one. from is nil for an empty volume.
func (s Store) Create(ctx context.Context, want Volume, from *Source) (Volume, error) {
	if from != nil {
		want.Source = from.ID()
	}
	have, err := s.named(volumes, want.Name)
	if err == nil {
		if have.Kind != want.Kind || have.Source != want.Source || have.Bytes < want.Bytes {
			return have, fmt.Errorf("making volume %s: %w: %s of %d bytes made from %q", want.Name, ErrConflict, have.Kind, have.Bytes, have.Source)
		}
		return have, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return have, err
	}
	free, err := s.Free(want.Disk)
	if err != nil {
		return want, err
	}
	if want.Bytes > free {
		return want, fmt.Errorf("making volume %s of %d bytes: %w: %d bytes are free on disk %s", want.Name, want.Bytes, ErrNoSpace, free, want.Disk)
	}
	want.Created = time.Now().UTC()
	return want, s.publish(volumes, want, func(data string) error {
		if from == nil {
			return blank(ctx, data, want)
		}
		return from.copyTo(ctx, data, want)
	})
}

// CreateSnapshot copies a volume's content, or returns the existing snapshot.
func (s Store) CreateSnapshot(ctx context.Context, name string, of Volume) (Volume, error) {
	have, err := s.named(snapshots, name)
	if err == nil {
		if have.Source != of.ID() {
			return have, fmt.Errorf("making snapshot %s: %w: it is one of %s", name, ErrConflict, have.Source)
		}
		return have, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return have, err
	}
	from, err := s.FromVolume(of.ID())
	if err != nil {
		return have, err
	}
	snapshot := of
	snapshot.Name, snapshot.Source, snapshot.Created = name, of.ID(), time.Now().UTC()
	return snapshot, s.publish(snapshots, snapshot, func(data string) error {
		return from.copyAtRest(ctx, data)
	})
}

// publish creates a volume atomically.
func (s Store) publish(shelf string, v Volume, fill func(data string) error) error {
	root, err := s.On(v.Disk)
	if err != nil {
		return err
	}
	final := filepath.Join(root, shelf, v.Name)
	making := filepath.Join(root, shelf, ".new-"+v.Name)
	err = errors.Join(os.RemoveAll(making), os.MkdirAll(making, 0o700))
	if err == nil {
		err = fill(filepath.Join(making, dataName))
	}
	if err == nil {
		err = writeRecord(making, v)
	}
	if err == nil {
		err = syncTree(making, v.Kind)
	}
	if err == nil {
		err = os.Rename(making, final)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making %s on disk %s: %w", v.Name, v.Disk, err), os.RemoveAll(making))
	}
	return syncDir(filepath.Dir(final))
}

// Delete ignores a missing volume.
func (s Store) Delete(id string) error { return s.remove(volumes, id) }

// DeleteSnapshot ignores a missing snapshot.
func (s Store) DeleteSnapshot(id string) error { return s.remove(snapshots, id) }

func (s Store) remove(shelf, id string) error {
	v, err := s.read(shelf, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := s.On(v.Disk)
	if err != nil {
		return err
	}
	gone := filepath.Join(root, shelf, ".gone-"+v.Name)
	err = errors.Join(os.RemoveAll(gone), os.Rename(filepath.Join(root, shelf, v.Name), gone), os.RemoveAll(gone))
	if err != nil {
		return fmt.Errorf("deleting %s: %w", id, err)
	}
	return nil
}

// Sweep removes the remains of interrupted calls. It must not run beside others.
func (s Store) Sweep() error {
	disks, err := s.Disks()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range disks {
		for _, pattern := range []string{"volumes/.new-*", "volumes/.gone-*", "snapshots/.new-*", "snapshots/.gone-*"} {
			left, err := filepath.Glob(filepath.Join(root, pattern))
			errs = append(errs, err)
			for _, dir := range left {
				errs = append(errs, os.RemoveAll(dir))
			}
		}
	}
	return errors.Join(errs...)
}

// Grow extends a volume. Its node grows the filesystem.
func (s Store) Grow(id string, bytes int64) (Volume, error) {
	v, err := s.Volume(id)
	if err != nil || v.Bytes >= bytes {
		return v, err
	}
	free, err := s.Free(v.Disk)
	if err != nil {
		return v, err
	}
	if bytes-v.Bytes > free {
		return v, fmt.Errorf("growing %s to %d bytes: %w: %d bytes are free on disk %s", id, bytes, ErrNoSpace, free, v.Disk)
	}
	root, err := s.On(v.Disk)
	if err != nil {
		return v, err
	}
	grown := v
	grown.Bytes = bytes
	if v.Kind != Folder {
		if err := lengthen(Data(root, v.Name), grown.fileBytes()); err != nil {
			return v, err
		}
	}
	return grown, writeRecord(filepath.Join(root, volumes, v.Name), grown)
}
