// Package iso writes ISO 9660 images, which carry cloud-init data, ConfigMaps, Secrets and the like to a guest.
//
// It owns the format: Rock Ridge names for Unix guests, and Joliet names for Windows if they fit. It must not know
// what the files are for.
package iso

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

const (
	sector = 2048
	// maxJolietName is in characters. A longer name would damage the whole Joliet directory.
	maxJolietName = 64
	// maxName is in characters. The library gets Rock Ridge's names wrong from 132 on.
	maxName  = 128
	maxLabel = 32
)

// File is one file of an image.
type File struct {
	// Path is relative to the image's root, with slashes.
	Path string
	Data []byte
}

// Write writes a file system to the empty file image. The content, which may be secret, is also in a private folder
// under os.TempDir until Write returns.
func Write(image *os.File, label string, files []File) (err error) {
	if len(label) > maxLabel {
		return fmt.Errorf("writing an ISO image: the label %q is longer than %d characters", label, maxLabel)
	}
	private, err := os.MkdirTemp("", "iso-")
	if err != nil {
		return fmt.Errorf("writing an ISO image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	// The image's root gets this folder's mode, for the users in the guest; the private folder denies access here.
	workspace := filepath.Join(private, "root")
	if err := errors.Join(os.Mkdir(workspace, 0o755), os.Chmod(workspace, 0o755)); err != nil {
		return fmt.Errorf("writing an ISO image: %w", err)
	}
	fs, err := iso9660.Create(file.New(image, false), 0, 0, sector, workspace)
	if err != nil {
		return fmt.Errorf("writing an ISO image: %w", err)
	}
	for _, f := range files {
		if err := add(fs, f); err != nil {
			return fmt.Errorf("adding %s to an ISO image: %w", f.Path, err)
		}
	}
	options := iso9660.FinalizeOptions{RockRidge: true, Joliet: fitsJoliet(files), VolumeIdentifier: label}
	if err := fs.Finalize(options); err != nil {
		return fmt.Errorf("writing an ISO image: %w", err)
	}
	// The last file may end within a sector, and a drive reads whole sectors only.
	info, err := image.Stat()
	if err != nil {
		return fmt.Errorf("looking at an ISO image: %w", err)
	}
	whole := (info.Size() + sector - 1) / sector * sector
	if err := image.Truncate(whole); err != nil {
		return fmt.Errorf("padding an ISO image: %w", err)
	}
	return nil
}

func add(fs *iso9660.FileSystem, f File) error {
	if longestName(f.Path) > maxName {
		return fmt.Errorf("a name longer than %d characters does not fit", maxName)
	}
	if dir := path.Dir(f.Path); dir != "." {
		if err := fs.Mkdir(dir); err != nil {
			return err
		}
	}
	out, err := fs.OpenFile(f.Path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	if _, err := out.Write(f.Data); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

func fitsJoliet(files []File) bool {
	for _, f := range files {
		if longestName(f.Path) > maxJolietName {
			return false
		}
	}
	return true
}

func longestName(name string) int {
	longest := 0
	for part := range strings.SplitSeq(name, "/") {
		longest = max(longest, utf8.RuneCountInString(part))
	}
	return longest
}
