package rootfs

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// WriteTar writes the format of container layers.
func (f *FS) WriteTar(w io.Writer) error {
	archive := tar.NewWriter(w)
	for _, entry := range f.Entries() {
		if err := writeTarEntry(archive, entry); err != nil {
			return fmt.Errorf("writing %s to the layer: %w", entry.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the layer: %w", err)
	}
	return nil
}

func writeTarEntry(archive *tar.Writer, entry Entry) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(entry.Path, "/"),
		Mode:    int64(cpioMode(entry.Mode) & 0o7777),
		Uid:     entry.UID,
		Gid:     entry.GID,
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}
	switch {
	case entry.Mode&fs.ModeDir != 0:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case entry.Mode&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		header.Linkname = entry.Link
	case entry.Mode&fs.ModeCharDevice != 0:
		header.Typeflag = tar.TypeChar
		header.Devmajor, header.Devminor = int64(entry.Major), int64(entry.Minor)
	default:
		header.Typeflag = tar.TypeReg
		header.Size = int64(len(entry.Data))
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(entry.Data)
	return err
}

// WriteFolder writes into a folder, which it makes if need be. As root it also sets owners.
func (f *FS) WriteFolder(root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("making the folder %s: %w", root, err)
	}
	for _, entry := range f.Entries() {
		if err := writeFolderEntry(filepath.Join(root, entry.Path), entry); err != nil {
			return fmt.Errorf("writing %s to %s: %w", entry.Path, root, err)
		}
	}
	return nil
}

func writeFolderEntry(place string, entry Entry) error {
	switch {
	case entry.Mode&fs.ModeDir != 0:
		if err := os.MkdirAll(place, entry.Mode.Perm()); err != nil {
			return err
		}
	case entry.Mode&fs.ModeSymlink != 0:
		return os.Symlink(entry.Link, place)
	case entry.Mode&fs.ModeCharDevice != 0:
		return fmt.Errorf("a device can't be in a folder")
	default:
		if err := os.WriteFile(place, entry.Data, entry.Mode.Perm()); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(place, entry.UID, entry.GID); err != nil {
			return err
		}
	}
	// The umask has reduced the mode, and chown clears the set-user bit.
	return os.Chmod(place, entry.Mode&(fs.ModePerm|fs.ModeSticky|fs.ModeSetuid))
}
