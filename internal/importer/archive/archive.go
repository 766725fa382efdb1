// Package archive unpacks a tar file into the folder of a claim.
//
// It must write nothing outside: the kernel resolves every name below the folder (os.Root), even through the
// archive's links. Devices and other special files are an error.
package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const maxEntries = 1 << 22

// Unpack unpacks an archive and returns the bytes of its files, which limit bounds.
func Unpack(from io.Reader, dir string, limit int64) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("opening the claim's folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	u := unpacking{root: root, limit: limit}
	archive := tar.NewReader(from)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if entries == 0 {
				return 0, damaged(errors.New("it has no files"))
			}
			return u.written, nil
		}
		if err != nil {
			return u.written, damaged(err)
		}
		if entries > maxEntries {
			return u.written, job.Faultf(transfer.ReasonLimit, "the archive has more than %d files", maxEntries)
		}
		if err := u.entry(header, archive); err != nil {
			return u.written, err
		}
	}
}

func damaged(err error) error {
	var fault *job.Fault
	if errors.As(err, &fault) {
		return err
	}
	return job.Faultf(transfer.ReasonInvalidImage, "the archive can't be read: %w", err)
}

type unpacking struct {
	root           *os.Root
	limit, written int64
}

func (u *unpacking) entry(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if strings.Contains("/"+header.Name+"/", "/../") {
		return job.Faultf(transfer.ReasonUnsafeImage, "the archive has the name %q, which leads out of it", header.Name)
	}
	if name == "" {
		return nil
	}
	mode := fs.FileMode(header.Mode).Perm()
	var err error
	switch header.Typeflag {
	case tar.TypeDir:
		err = u.root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		err = u.file(name, mode, header.Size, content)
	case tar.TypeSymlink:
		err = u.link(name, func() error { return u.root.Symlink(header.Linkname, name) })
	case tar.TypeLink:
		target := strings.TrimPrefix(path.Clean("/"+header.Linkname), "/")
		err = u.link(name, func() error { return u.root.Link(target, name) })
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return job.Faultf(transfer.ReasonUnsafeImage, "the archive has %q, which is neither a file nor a folder nor a link", header.Name)
	}
	if err != nil && strings.Contains(err.Error(), "path escapes from parent") {
		return job.Faultf(transfer.ReasonUnsafeImage, "the archive has the name %q, which leads out of it: %w", header.Name, err)
	}
	return err
}

func (u *unpacking) link(name string, link func() error) error {
	if err := u.parents(name); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return link()
}

func (u *unpacking) parents(name string) error {
	if dir := path.Dir(name); dir != "." {
		return u.root.MkdirAll(dir, 0o755)
	}
	return nil
}

func (u *unpacking) file(name string, mode fs.FileMode, size int64, content io.Reader) error {
	if size > u.limit-u.written {
		return job.Faultf(transfer.ReasonTooLarge, "the files in the archive have more than the %s that were asked for: request more", job.Bytes(u.limit))
	}
	if err := u.parents(name); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing %s: %w", name, err)
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	written, err := io.Copy(file, content)
	u.written += written
	var broken *fs.PathError
	if err != nil && !errors.As(err, &broken) {
		err = damaged(err)
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	return nil
}

// Clear empties a folder except for lost+found.
func Clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clearing the claim's folder: %w", err)
	}
	var all error
	for _, entry := range entries {
		if entry.Name() != "lost+found" {
			all = errors.Join(all, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return all
}
