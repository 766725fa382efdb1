// Package podpath is virt-handler's access to a launcher pod: directories that a planted symlink can't lead out of,
// sockets found by inotify, and the process at a socket's other end.
//
// A guest that broke out of QEMU may have made everything below a pod's own volumes, so openat2 resolves every name
// there beneath a directory that the kubelet made. The package must know no Kubernetes object and make no decision
// about a VM.
package podpath

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir is an open directory; names are resolved beneath it.
type Dir struct {
	file    *os.File
	path    string
	resolve uint64
	label   Labeler
}

// Labeler gives a file the SELinux label for a launcher.
type Labeler func(path string) error

// strict refuses every symlink. It is for directories that the guest's process can write to.
const strict = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// inRoot treats the directory as the root of all paths: a volume's own symlinks (the kubelet's ..data) work and can't
// lead out of it.
const inRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

// Open opens the directory at path, which must not be writable by guests.
func Open(path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening folder %s: %w", path, err)
	}
	return &Dir{file: os.NewFile(uintptr(fd), path), path: path, resolve: strict}, nil
}

// OpenRoot opens the root of a container's file system (inRoot).
func OpenRoot(path string) (*Dir, error) {
	d, err := Open(path)
	if err == nil {
		d.resolve = inRoot
	}
	return d, err
}

// Close makes a later use fail with os.ErrClosed, never reach a reused descriptor.
func (d *Dir) Close() {
	_ = d.file.Close()
}

// with keeps the descriptor open until do returns.
func (d *Dir) with(do func(fd int) error) error {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("using folder %s: %w", d.path, err)
	}
	var doErr error
	if err := raw.Control(func(fd uintptr) { doErr = do(int(fd)) }); err != nil {
		return fmt.Errorf("using folder %s: %w", d.path, err)
	}
	return doErr
}

// Sub opens a directory beneath d.
func (d *Dir) Sub(name string) (*Dir, error) {
	fd, err := d.openat(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(d.path, name)
	return &Dir{file: os.NewFile(uintptr(fd), path), path: path, resolve: d.resolve, label: d.label}, nil
}

// LabelNew sets the label of new files beneath d.
func (d *Dir) LabelNew(label Labeler) { d.label = label }

// Named calls do with a path to the directory itself, even if its own path has changed.
func (d *Dir) Named(do func(path string) error) error {
	return d.with(func(fd int) error { return do(ownPath(fd)) })
}

func ownPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Strict is Sub for a directory that guests can write to.
func (d *Dir) Strict(name string) (*Dir, error) {
	sub, err := d.Sub(name)
	if err == nil {
		sub.resolve = strict
	}
	return sub, err
}

// File opens a regular file beneath d and nothing else, whatever was planted under the name. flags are open(2)'s.
func (d *Dir) File(name string, flags int) (*os.File, error) {
	found, err := d.find(name, 0)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if !found.is(unix.S_IFREG) {
		return nil, fmt.Errorf("opening %s: it is no regular file", found.path)
	}
	return found.reopen(flags)
}

// CharDevice opens the character device with that number beneath d.
func (d *Dir) CharDevice(name string, number uint64, flags int) (*os.File, error) {
	found, err := d.find(name, 0)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if !found.is(unix.S_IFCHR) || found.stat.Rdev != number {
		return nil, fmt.Errorf("opening %s: it is not the character device %d:%d", found.path, unix.Major(number), unix.Minor(number))
	}
	return found.reopen(flags)
}

// FileSize returns the size of a regular file beneath d, without opening it.
func (d *Dir) FileSize(name string) (int64, error) {
	found, err := d.find(name, 0)
	if err != nil {
		return 0, err
	}
	defer found.close()
	if !found.is(unix.S_IFREG) {
		return 0, fmt.Errorf("measuring %s: it is no regular file", found.path)
	}
	return found.stat.Size, nil
}

// ReadFile reads a regular file beneath d, of at most limit bytes.
func (d *Dir) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := d.File(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", f.Name(), err)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("reading %s: its %d bytes are more than the %d that are allowed", f.Name(), info.Size(), limit)
	}
	data := make([]byte, info.Size())
	n, err := f.ReadAt(data, 0)
	if err != nil && n != len(data) {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return data, nil
}

// ReadDir lists a directory beneath d. More than limit entries are an error.
func (d *Dir) ReadDir(name string, limit int) ([]fs.DirEntry, error) {
	fd, err := d.openat(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	defer f.Close()
	entries, err := f.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("listing %s: %w", f.Name(), err)
	}
	if len(entries) > limit {
		return nil, fmt.Errorf("listing %s: it holds more than %d names", f.Name(), limit)
	}
	return entries, nil
}

// IsDir reports whether name, or the target of its link, is a directory.
func (d *Dir) IsDir(name string) (bool, error) {
	found, err := d.find(name, 0)
	if err != nil {
		return false, err
	}
	defer found.close()
	return found.is(unix.S_IFDIR), nil
}

// Available returns how many bytes an unprivileged process can still write to the file system.
func (d *Dir) Available() (int64, error) {
	var st unix.Statfs_t
	if err := d.with(func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return 0, fmt.Errorf("asking for the space left in %s: %w", d.path, err)
	}
	return available(&st), nil
}

// available counts in fragments: a FUSE file system's Bsize is only its preferred size of a transfer. Some network file
// systems report more than fits into an int64.
func available(st *unix.Statfs_t) int64 {
	if st.Frsize > 0 && st.Bavail > uint64(math.MaxInt64/st.Frsize) {
		return math.MaxInt64
	}
	return int64(st.Bavail) * st.Frsize
}

// Exists reports whether the name exists, even as a symlink.
func (d *Dir) Exists(name string) (bool, error) {
	fd, err := d.openat(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}

// Create makes or replaces the file name directly in d, of owner. It appears at once, with the content that fill
// writes.
func (d *Dir) Create(name string, owner int, mode fs.FileMode, fill func(*os.File) error) error {
	if filepath.Base(name) != name {
		return fmt.Errorf("creating %s in %s: the name has more than one part", name, d.path)
	}
	temporary := "." + name + "." + rand.Text()
	fd, err := d.openat(temporary, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	defer f.Close()
	if err := d.publish(f, temporary, name, owner, mode, fill); err != nil {
		return errors.Join(err, d.with(func(dir int) error { return unix.Unlinkat(dir, temporary, 0) }))
	}
	return nil
}

// NewFile makes the empty file name directly in d, of owner, and opens it for writing. It fails if the name exists, even as
// a symlink.
func (d *Dir) NewFile(name string, owner int, mode fs.FileMode) (*os.File, error) {
	if filepath.Base(name) != name {
		return nil, fmt.Errorf("creating %s in %s: the name has more than one part", name, d.path)
	}
	fd, err := d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	if err := errors.Join(d.labelFile(f), f.Chown(owner, owner), f.Chmod(mode)); err != nil {
		f.Close()
		return nil, errors.Join(fmt.Errorf("giving %s to user %d: %w", f.Name(), owner, err), d.unlink(name))
	}
	return f, nil
}

// Remove removes a name directly in d that is no folder, if it exists. A symlink is removed itself.
func (d *Dir) Remove(name string) error {
	if filepath.Base(name) != name {
		return fmt.Errorf("removing %s from %s: the name has more than one part", name, d.path)
	}
	return d.unlink(name)
}

// Rename gives a name directly in d to another one there, which it replaces. No symlink is followed.
func (d *Dir) Rename(from, to string) error {
	for _, name := range []string{from, to} {
		if filepath.Base(name) != name {
			return fmt.Errorf("renaming %s in %s: the name has more than one part", name, d.path)
		}
	}
	if err := d.with(func(dir int) error { return unix.Renameat(dir, from, dir, to) }); err != nil {
		return fmt.Errorf("renaming %s to %s: %w", filepath.Join(d.path, from), to, err)
	}
	return nil
}

// Folder opens the folder name directly in d, or makes it with access for owner alone. An existing one is given to
// owner.
func (d *Dir) Folder(name string, owner int) (*Dir, error) {
	if filepath.Base(name) != name {
		return nil, fmt.Errorf("making the folder %s in %s: the name has more than one part", name, d.path)
	}
	err := d.with(func(dir int) error { return unix.Mkdirat(dir, name, 0o700) })
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making the folder %s in %s: %w", name, d.path, err)
	}
	sub, err := d.Strict(name)
	if err != nil {
		return nil, err
	}
	err = sub.with(func(fd int) error {
		if made && d.label != nil {
			if err := d.label(ownPath(fd)); err != nil {
				return err
			}
		}
		var is unix.Stat_t
		if err := unix.Fstat(fd, &is); err != nil || int(is.Uid) == owner {
			return err
		}
		return unix.Fchownat(fd, "", owner, owner, unix.AT_EMPTY_PATH)
	})
	if err != nil {
		sub.Close()
		return nil, fmt.Errorf("giving the folder %s to user %d: %w", sub.path, owner, err)
	}
	return sub, nil
}

// Sync flushes the directory's entries to storage.
func (d *Dir) Sync() error {
	fd, err := d.openat(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("storing the names in %s: %w", d.path, err)
	}
	return nil
}

func (d *Dir) labelFile(f *os.File) error {
	if d.label == nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("labeling %s: %w", f.Name(), err)
	}
	var labelErr error
	if err := raw.Control(func(fd uintptr) { labelErr = d.label(ownPath(int(fd))) }); err != nil {
		return fmt.Errorf("labeling %s: %w", f.Name(), err)
	}
	if labelErr != nil {
		return fmt.Errorf("creating %s: %w", f.Name(), labelErr)
	}
	return nil
}

func (d *Dir) publish(f *os.File, from, to string, owner int, mode fs.FileMode, fill func(*os.File) error) error {
	if err := d.labelFile(f); err != nil {
		return err
	}
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chown(owner, owner); err != nil {
		return fmt.Errorf("giving %s to user %d: %w", f.Name(), owner, err)
	}
	// The umask may have narrowed the mode.
	if err := f.Chmod(mode); err != nil {
		return fmt.Errorf("setting the mode of %s: %w", f.Name(), err)
	}
	if err := d.with(func(dir int) error { return unix.Renameat(dir, from, dir, to) }); err != nil {
		return fmt.Errorf("renaming %s into its place: %w", f.Name(), err)
	}
	return nil
}

// OwnFile gives the regular file name to uid and gid owner.
func (d *Dir) OwnFile(name string, owner int) error {
	return d.own(name, owner, "regular file", unix.S_IFREG)
}

// OwnDevice does the same for a device node.
func (d *Dir) OwnDevice(name string, owner int) error {
	return d.own(name, owner, "device", unix.S_IFBLK, unix.S_IFCHR)
}

func (d *Dir) own(name string, owner int, what string, kinds ...uint32) error {
	found, err := d.find(name, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer found.close()
	if !slices.ContainsFunc(kinds, found.is) {
		return fmt.Errorf("giving %s to user %d: it is no %s", found.path, owner, what)
	}
	if int(found.stat.Uid) == owner {
		return nil
	}
	if err := unix.Fchownat(found.fd, "", owner, owner, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("giving %s to user %d: %w", found.path, owner, err)
	}
	return nil
}

// Dial connects to a unix socket beneath d.
func (d *Dir) Dial(ctx context.Context, name string) (*net.UnixConn, error) {
	found, err := d.find(name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if !found.is(unix.S_IFSOCK) {
		return nil, fmt.Errorf("connecting to %s: it is no socket", found.path)
	}
	// This link leads to the very socket that was checked.
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", ownPath(found.fd))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", found.path, err)
	}
	return conn.(*net.UnixConn), nil
}

// maxLooks limits the wait for a process that keeps renaming folders.
const maxLooks = 1000

func (d *Dir) openat(name string, flags int, mode fs.FileMode) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: d.resolve}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	fd := -1
	err := d.with(func(dir int) error {
		var err error
		for range maxLooks {
			fd, err = unix.Openat2(dir, name, how)
			// EAGAIN: a rename raced with the walk.
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
				return err
			}
		}
		return fmt.Errorf("names on its way change all the time: %w", err)
	})
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", filepath.Join(d.path, name), err)
	}
	return fd, nil
}

func release(fd int) { _ = unix.Close(fd) }
