package main

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
)

// writeArchive writes the files as one folder into an archive, atomically, and returns its size. It
// uses gzip because every Debian has it, unlike better compressors.
func writeArchive(path, folder string, files []file) (int64, error) {
	scratch, err := os.CreateTemp(filepath.Dir(path), ".release-")
	if err != nil {
		return 0, fmt.Errorf("making the archive: %w", err)
	}
	defer func() { _ = os.Remove(scratch.Name()) }()
	defer func() { _ = scratch.Close() }()
	if err := pack(scratch, folder, files); err != nil {
		return 0, fmt.Errorf("writing the archive: %w", err)
	}
	info, err := scratch.Stat()
	if err == nil {
		err = errors.Join(scratch.Chmod(0o644), scratch.Close())
	}
	if err == nil {
		err = os.Rename(scratch.Name(), path)
	}
	if err != nil {
		return 0, fmt.Errorf("writing the archive: %w", err)
	}
	return info.Size(), nil
}

func pack(w io.Writer, folder string, files []file) error {
	zip, err := gzip.NewWriterLevel(w, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zip)
	sorted := slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for _, f := range sorted {
		if err := f.pack(archive, folder); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}

// The archive must have no trace of the building machine.
func (f file) pack(archive *tar.Writer, folder string) error {
	header := &tar.Header{Name: folder + "/" + f.name, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if f.link != "" {
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		return archive.WriteHeader(header)
	}
	from, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	header.Typeflag, header.Mode, header.Size = tar.TypeReg, int64(f.mode), int64(len(f.data))
	if f.source != "" {
		info, err := os.Stat(f.source)
		if err != nil {
			return err
		}
		header.Size = info.Size()
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, from)
	return err
}
