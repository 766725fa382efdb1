// Package loop detaches the loop devices that a node has left behind: the
// kubelet makes one per block volume on a file, and a node that is killed
// can't take them away any more.
package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Under lists the loop devices whose files lie in a folder.
func Under(dir string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // detached while we looked
		}
		backing := strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")
		if strings.HasPrefix(backing, strings.TrimSuffix(dir, "/")+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found, nil
}

// Detach frees the loop devices whose files lie in a folder.
func Detach(dir string) error {
	devices, err := Under(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, device := range devices {
		errs = append(errs, free(device))
	}
	return errors.Join(errs...)
}

func free(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the loop device %s: %w", device, err)
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: it is free already
		return fmt.Errorf("detaching the loop device %s: %w", device, err)
	}
	return nil
}
