package podpath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Listener is a socket of virt-handler in a folder of a pod.
type Listener struct {
	*net.UnixListener
	dir *Dir
	// made stays open so that no other file gets the socket's inode number.
	name string
	made *entry
}

// Listen makes the socket name directly in d, accessible to owner alone. It replaces the socket of a killed
// virt-handler; any other file is an error. The kernel fails if the last part of the path exists, so it never follows
// a planted link.
func (d *Dir) Listen(ctx context.Context, name string, owner int) (*Listener, error) {
	if filepath.Base(name) != name {
		return nil, fmt.Errorf("listening at %s in %s: the name has more than one part", name, d.path)
	}
	fd := -1
	err := d.with(func(own int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keeping folder %s open: %w", d.path, err)
	}
	kept := &Dir{file: os.NewFile(uintptr(fd), d.path), path: d.path, resolve: d.resolve, label: d.label}
	l, err := kept.listen(ctx, name, owner)
	if err != nil {
		kept.Close()
		return nil, err
	}
	return l, nil
}

func (d *Dir) listen(ctx context.Context, name string, owner int) (*Listener, error) {
	if err := d.removeSocket(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.path, name)
	var listener net.Listener
	err := d.with(func(fd int) (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(ownPath(fd), name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	l := &Listener{UnixListener: listener.(*net.UnixListener), dir: d, name: name}
	// At Close the path may lead to another file.
	l.SetUnlinkOnClose(false)
	if l.made, err = d.find(name, unix.O_NOFOLLOW); err != nil {
		return nil, errors.Join(err, l.UnixListener.Close())
	}
	if err := l.chown(owner); err != nil {
		return nil, errors.Join(err, l.UnixListener.Close(), l.remove())
	}
	return l, nil
}

func (d *Dir) removeSocket(name string) error {
	found, err := d.find(name, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer found.close()
	if !found.is(unix.S_IFSOCK) {
		return fmt.Errorf("listening at %s: something that is no socket has the name; only a process in the pod can have made it", found.path)
	}
	return d.unlink(name)
}

func (d *Dir) unlink(name string) error {
	err := d.with(func(fd int) error { return unix.Unlinkat(fd, name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing %s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

// chown gives the socket to owner, with the label of the pod's files.
func (l *Listener) chown(owner int) error {
	// No process in the pod can make a file of virt-handler's user.
	if !l.made.is(unix.S_IFSOCK) || int(l.made.stat.Uid) != os.Geteuid() {
		return fmt.Errorf("listening at %s: the socket was exchanged for something else", l.made.path)
	}
	if l.dir.label != nil {
		if err := l.dir.label(ownPath(l.made.fd)); err != nil {
			return fmt.Errorf("listening at %s: %w", l.made.path, err)
		}
	}
	if err := unix.Chmod(ownPath(l.made.fd), 0o600); err != nil {
		return fmt.Errorf("setting the mode of %s: %w", l.made.path, err)
	}
	if err := unix.Fchownat(l.made.fd, "", owner, owner, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("giving %s to user %d: %w", l.made.path, owner, err)
	}
	return nil
}

// Accept returns the next connection.
func (l *Listener) Accept() (*net.UnixConn, error) { return l.AcceptUnix() }

// Close removes the socket's name too, unless it now belongs to another file. Only the first call has an effect.
func (l *Listener) Close() error {
	if err := l.UnixListener.Close(); err != nil {
		return err
	}
	defer l.dir.Close()
	return l.remove()
}

func (l *Listener) remove() error {
	defer l.made.close()
	found, err := l.dir.find(l.name, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer found.close()
	// Only a process in the pod can replace the socket after this check, and only with its own.
	if found.stat.Dev != l.made.stat.Dev || found.stat.Ino != l.made.stat.Ino || !found.is(unix.S_IFSOCK) {
		return nil
	}
	return l.dir.unlink(l.name)
}
