package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Whole makes a folder that appears only when all of it is there: fill fills made, which is then renamed; scratch is for
// what nobody needs afterwards. Of two processes that make the same folder the later one's is dropped.
func Whole(folder string, fill func(made, scratch string) error) error {
	scratch, err := os.MkdirTemp(filepath.Dir(folder), "making-")
	if err != nil {
		return fmt.Errorf("making a folder for the parts of %s: %w", folder, err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	made := filepath.Join(scratch, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return fmt.Errorf("making a folder for the parts of %s: %w", folder, err)
	}
	if err := fill(made, scratch); err != nil {
		return err
	}
	if err := os.Rename(made, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("moving %s into place: %w", folder, err)
	}
	return nil
}

// RemoveOthers removes the folders beside the given one that match a pattern: those that it replaces.
func RemoveOthers(folder, pattern string) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(folder), pattern))
	if err != nil {
		return fmt.Errorf("listing the folders that %s replaces: %w", folder, err)
	}
	for _, path := range found {
		if path != folder {
			_ = os.RemoveAll(path) // what stays only takes room
		}
	}
	return nil
}
