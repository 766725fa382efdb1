// Package loop manages the loop devices of a cluster: it creates them for volumes, finds them, and frees those
// that a dead node has left. The kernel stores the owner's tag with a device, because paths differ between mount
// namespaces. It must not touch another owner's device.
package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type device struct {
	path string
	// backing is a path in our mount namespace.
	backing string
	info    unix.LoopInfo64
	number  uint64
}

func (d device) tag() string { return unix.ByteSliceToString(d.info.File_name[:]) }

func list() ([]device, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var found []device
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // detached since
		}
		d := device{path: "/dev/" + strings.Split(file, "/")[3]}
		d.backing = strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")
		if d.read() == nil {
			found = append(found, d)
		}
	}
	return found, nil
}

// read fails if the device has been detached.
func (d *device) read() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.readFrom(f)
}

func (d *device) readFrom(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	d.number = st.Rdev
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return err
	}
	d.info = *info
	return nil
}

// Under lists the loop devices with a tag or one below it, those with files in a folder, and those stacked on one
// of these: the kubelet stacks a second device on a block volume's to hold it open.
func Under(tag, dir string) ([]string, error) {
	found, err := under(tag, dir)
	return paths(found), err
}

func paths(devices []device) (all []string) {
	for _, d := range devices {
		all = append(all, d.path)
	}
	return all
}

func under(tag, dir string) ([]device, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	ours := map[uint64]bool{}
	for _, d := range all {
		if d.tag() == tag || strings.HasPrefix(d.tag(), tag+"/") ||
			strings.HasPrefix(d.backing, strings.TrimSuffix(dir, "/")+"/") {
			ours[d.number] = true
		}
	}
	var stacked, lower []device
	for _, d := range all {
		switch {
		case d.info.Rdevice != 0 && ours[d.info.Rdevice]:
			stacked = append(stacked, d)
		case ours[d.number]:
			lower = append(lower, d)
		}
	}
	return append(stacked, lower...), nil
}

// patience is the wait for a device after its last user: a mount namespace outlives its last process by a moment, in
// which its file systems write back.
const patience = time.Minute

// Detach frees the devices that Under lists and waits until they are gone.
func Detach(ctx context.Context, tag, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := under(tag, dir)
		if err != nil || len(left) == 0 {
			return err
		}
		var errs []error
		for _, d := range left {
			errs = append(errs, d.free())
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("detaching the loop devices %q: somebody still has them open: %w", paths(left), ctx.Err())
		case <-tick.C:
		}
	}
}

// Free detaches the devices with exactly this tag. An open one is freed with its last user.
func Free(tag string) error {
	found, err := withTag(tag)
	for _, d := range found {
		err = errors.Join(err, d.free())
	}
	return err
}

// free detaches a listed device, unless its number belongs to another file since. While it is open here, the number
// can't change owner again.
func (d device) free() error {
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil // somebody else is detaching it
	}
	if err != nil {
		return fmt.Errorf("opening the loop device %s: %w", d.path, err)
	}
	defer f.Close()
	is := device{path: d.path}
	err = is.readFrom(f)
	if err == nil {
		if !is.same(d) {
			return nil
		}
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	}
	if err != nil && !errors.Is(err, unix.ENXIO) { // already free
		return fmt.Errorf("detaching the loop device %s: %w", d.path, err)
	}
	return nil
}

func (d device) same(other device) bool {
	return d.info.Device == other.info.Device && d.info.Inode == other.info.Inode && d.tag() == other.tag()
}
