package podpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// They bound the wait for a lease, which a guest's process may take on its disks. The kernel ends it some time after the
// first attempt (45 s by default), so a later attempt succeeds.
const (
	leasePatience = time.Second
	leasePause    = 20 * time.Millisecond
)

// entry is opened with O_PATH, which involves no device driver, no other end of a FIFO and no holder of a lease.
type entry struct {
	fd   int
	path string
	stat unix.Stat_t
	// onNode means a path from the node's root, whose mounts belong to another mount namespace.
	onNode bool
}

func (d *Dir) find(name string, extra int) (*entry, error) {
	fd, err := d.openat(name, unix.O_PATH|extra, 0)
	if err != nil {
		return nil, err
	}
	return newEntry(fd, filepath.Join(d.path, name))
}

func newEntry(fd int, path string) (*entry, error) {
	e := &entry{fd: fd, path: path}
	if err := unix.Fstat(fd, &e.stat); err != nil {
		e.close()
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	return e, nil
}

func (e *entry) close() { release(e.fd) }

func (e *entry) is(kind uint32) bool { return e.stat.Mode&unix.S_IFMT == kind }

// reopen opens the file or device that was checked. flags are open(2)'s.
func (e *entry) reopen(flags int) (*os.File, error) {
	link := ownPath(e.fd)
	deadline := time.Now().Add(leasePatience)
	for {
		fd, err := unix.Open(link, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), e.path), nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("opening %s: %w", e.path, err)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("opening %s: another process holds a lease on the file and does not give it up: %w", e.path, err)
		default:
			time.Sleep(leasePause)
		}
	}
}

func (e *entry) mustBeMounted() error {
	var st unix.Statx_t
	if err := unix.Statx(e.fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st); err != nil {
		return fmt.Errorf("looking at %s: %w", e.path, err)
	}
	switch {
	case st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return fmt.Errorf("looking at %s: this kernel does not say what is mounted; 5.8 or later does", e.path)
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return fmt.Errorf("nothing is mounted at %s, or not any more", e.path)
	}
	return nil
}

// detach clones the entry's mount into no mount namespace: files opened through the clone don't keep the original
// mount from being unmounted.
//
// The node's own mounts can't be cloned from here, and need not be: the kubelet unmounts none of them.
func (e *entry) detach() (*entry, error) {
	if e.onNode {
		fd, err := unix.FcntlInt(uintptr(e.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("keeping %s open: %w", e.path, err)
		}
		return newEntry(fd, e.path)
	}
	fd, err := unix.OpenTree(e.fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("cloning the mount of %s: %w", e.path, err)
	}
	return newEntry(fd, e.path)
}
