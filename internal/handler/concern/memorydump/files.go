package memorydump

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
	qemudump "drydock.dev/drydock/internal/qemu/memorydump"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
)

const (
	mostNames = 10_000
	// mode lets a pod with the file's group read the dump. fsGroup gives it such a group.
	mode fs.FileMode = 0o640
)

// target is a file in a claim. Everything in the claim may be hostile.
type target struct {
	folder           *podpath.Dir
	vmi, claim, file string
	need             int64 // bytes
	last             qemudump.State
}

// outcome has either the whole file under its name, or a new one that is open for QEMU, or the space that was left in the
// claim.
type outcome struct {
	stored bool
	file   *os.File
	left   int64
}

// prepare finds the file of a virt-handler that has died, or makes a new one.
func (t *target) prepare() (outcome, error) {
	stored, err := t.folder.Exists(t.file)
	if err != nil || stored {
		return outcome{stored: stored}, err
	}
	size, err := t.folder.FileSize(memorydump.Partial(t.file))
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return outcome{}, err
	case size == 0: // QEMU was not given the file
	case memorydump.Progress(t.last.Status) == memorydump.Completed && size >= t.last.Total:
		return t.finish()
	default:
		if memorydump.Progress(t.last.Status) == memorydump.Failed {
			return outcome{}, errors.New("QEMU could not write the dump")
		}
	}
	if err := t.removeEarlier(); err != nil {
		return outcome{}, err
	}
	free, err := t.folder.Available()
	if err != nil {
		return outcome{}, err
	}
	if free < t.need {
		return outcome{}, fmt.Errorf("the PVC %s has %s left, and a dump of the guest's memory needs %s: delete files from it, or use a larger claim", t.claim, amount(free), amount(t.need))
	}
	file, err := t.folder.NewFile(memorydump.Partial(t.file), layout.QEMUUser, mode)
	return outcome{file: file}, err
}

func amount(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// removeEarlier removes the VM's earlier dumps: the claim has room for one.
func (t *target) removeEarlier() error {
	entries, err := t.folder.ReadDir(".", mostNames)
	if err != nil {
		return fmt.Errorf("looking for earlier dumps in the PVC %s: %w", t.claim, err)
	}
	for _, entry := range entries {
		if memorydump.IsOf(t.vmi, t.claim, entry.Name()) {
			if err := t.folder.Remove(entry.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish gives a file that QEMU has written its name, once it is on the storage.
func (t *target) finish() (outcome, error) {
	file, err := t.folder.File(memorydump.Partial(t.file), unix.O_RDWR)
	if err != nil {
		return outcome{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return outcome{}, fmt.Errorf("measuring the dump: %w", err)
	}
	if info.Size() == 0 || info.Size() < t.last.Total {
		return outcome{}, fmt.Errorf("the dump in the PVC %s has %d bytes, and QEMU has written %d: somebody has changed the file", t.claim, info.Size(), t.last.Total)
	}
	if err := file.Sync(); err != nil {
		return outcome{}, fmt.Errorf("storing the dump in the PVC %s: %w", t.claim, err)
	}
	if err := t.folder.Rename(memorydump.Partial(t.file), t.file); err != nil {
		return outcome{}, err
	}
	return outcome{stored: true}, t.folder.Sync()
}

func (t *target) clean() (outcome, error) {
	left, err := t.folder.Available()
	return outcome{left: left}, errors.Join(err, t.folder.Remove(memorydump.Partial(t.file)))
}
