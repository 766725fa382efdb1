// Package archive writes the files of a diagnosis, into a new folder or into a compressed tar file. It owns their names:
// no name of an object can lead out of the folder. It must not know the files' content.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
)

// Only the user may read a diagnosis.
const (
	fileMode   fs.FileMode = 0o600
	folderMode fs.FileMode = 0o700
)

// Writer takes the files of a diagnosis, one after the other.
type Writer interface {
	// Add writes a file. The elements of its path may be names of objects.
	Add(content []byte, elements ...string) error
	// Close ends the archive. After an error, or without Close, Discard removes it.
	Close() error
	Discard()
}

// New creates a folder, or a file if its name ends in .tgz or .tar.gz. An existing file is only overwritten if overwrite is
// set, and then only when the new one is complete; an existing folder must be empty.
func New(name string, overwrite bool, now time.Time) (Writer, error) {
	if !IsFile(name) {
		return newFolder(name)
	}
	return newFile(name, overwrite, now)
}

// IsFile reports whether the output is a file.
func IsFile(name string) bool {
	return strings.HasSuffix(name, ".tgz") || strings.HasSuffix(name, ".tar.gz")
}

const maxElement = 150

// Path returns a relative path of safe names.
func Path(elements ...string) string {
	safe := make([]string, 0, len(elements))
	for _, element := range elements {
		safe = append(safe, name(element))
	}
	return path.Join(safe...)
}

// name returns an element of a path: no separator, no device, no folder above. A changed name ends in a digest of the
// whole one.
func name(element string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, element)
	if strings.Trim(out, ".") == "" || strings.HasPrefix(out, ".") {
		out = "_" + out
	}
	if len(out) > maxElement {
		out = out[:maxElement]
	}
	if out == element {
		return out
	}
	extension := path.Ext(out)
	return strings.TrimSuffix(out, extension) + "-" + layout.Digest(element) + extension
}

// names has the paths that are taken: a server may list two objects with one name.
type names map[string]bool

// free returns a path that is not taken, with a number if it has to.
func (n names) free(elements []string) string {
	at := Path(elements...)
	extension := path.Ext(at)
	for number, bare := 2, strings.TrimSuffix(at, extension); n[at]; number++ {
		at = fmt.Sprintf("%s-%d%s", bare, number, extension)
	}
	n[at] = true
	return at
}

type folder struct {
	root  *os.Root
	names names
	added []string
	// made means that Discard may remove the folder itself.
	made bool
	path string
}

func newFolder(name string) (*folder, error) {
	err := os.Mkdir(name, folderMode)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		var entries []fs.DirEntry
		if entries, err = os.ReadDir(name); err == nil && len(entries) > 0 {
			err = &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
		}
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &folder{root: root, names: names{}, path: name, made: made}, nil
}

func (f *folder) Add(content []byte, elements ...string) error {
	at := filepath.FromSlash(f.names.free(elements))
	if err := f.root.MkdirAll(filepath.Dir(at), folderMode); err != nil {
		return fmt.Errorf("making the folder of %s: %w", at, err)
	}
	file, err := f.root.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	f.added = append(f.added, at)
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

func (f *folder) Close() error { return f.root.Close() }

// A folder that was there before keeps the files of others.
func (f *folder) Discard() {
	for _, at := range f.added {
		_ = f.root.Remove(at)
		for at = filepath.Dir(at); at != "."; at = filepath.Dir(at) {
			if f.root.Remove(at) != nil { // it is not empty
				break
			}
		}
	}
	_ = f.root.Close()
	if f.made {
		_ = os.Remove(f.path)
	}
}

type file struct {
	now     time.Time
	names   names
	out     *os.File
	zipped  *gzip.Writer
	tarred  *tar.Writer
	replace string // the file that the complete archive replaces
	top     string
}

func newFile(name string, overwrite bool, now time.Time) (*file, error) {
	base := filepath.Base(name)
	f := &file{now: now, names: names{}, top: strings.TrimSuffix(strings.TrimSuffix(base, ".tgz"), ".tar.gz")}
	var err error
	if overwrite {
		f.replace = name
		f.out, err = os.CreateTemp(filepath.Dir(name), "."+base+"-") // with fileMode
	} else {
		f.out, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	}
	if err != nil {
		return nil, err
	}
	f.zipped = gzip.NewWriter(f.out)
	f.tarred = tar.NewWriter(f.zipped)
	return f, nil
}

func (f *file) Add(content []byte, elements ...string) error {
	header := &tar.Header{
		Name: path.Join(name(f.top), f.names.free(elements)), Typeflag: tar.TypeReg, Mode: int64(fileMode), Size: int64(len(content)), ModTime: f.now,
	}
	if err := f.tarred.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", header.Name, err)
	}
	_, err := io.Copy(f.tarred, bytes.NewReader(content))
	return err
}

func (f *file) Close() error {
	err := errors.Join(f.tarred.Close(), f.zipped.Close(), f.out.Close())
	if err == nil && f.replace != "" {
		err = os.Rename(f.out.Name(), f.replace)
	}
	return err
}

func (f *file) Discard() {
	_ = f.out.Close()
	_ = os.Remove(f.out.Name())
}
