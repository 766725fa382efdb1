package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Whole creates a folder atomically: fill fills made, which is then renamed; scratch is for temporary files. If two
// processes create the same folder, the first result stays.
func Whole(folder string, fill func(made, scratch string) error) error {
	scratch, remove, err := Scratch(filepath.Dir(folder), "making-")
	if err != nil {
		return fmt.Errorf("making %s: %w", folder, err)
	}
	defer remove()
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

// RemoveOthers removes older folders that match a pattern.
func RemoveOthers(folder, pattern string) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(folder), pattern))
	if err != nil {
		return fmt.Errorf("listing the folders that %s replaces: %w", folder, err)
	}
	for _, path := range found {
		if path != folder {
			_ = os.RemoveAll(path) // leftovers only take space
		}
	}
	return nil
}
