package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// Archive is a stored image archive.
type Archive struct {
	// Digest is the SHA-256 of the archive in hex, which is also its file's name.
	Digest string `json:"digest"`
	// Refs are full names.
	Refs []string `json:"refs"`
}

// Store is the folder of the archives. A starting node gets its images from it.
type Store struct{ dir string }

// NewStore returns a store. Add creates its folder.
func NewStore(dir string) Store { return Store{dir: dir} }

// Path returns the file of an archive.
func (s Store) Path(a Archive) string { return filepath.Join(s.dir, a.Digest+".tar") }

// List returns the stored archives.
func (s Store) List() ([]Archive, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, "index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of loaded images: %w", err)
	}
	var archives []Archive
	if err := json.Unmarshal(data, &archives); err != nil {
		return nil, fmt.Errorf("reading the list of loaded images: %w", err)
	}
	return archives, nil
}

// Add copies an archive. It removes those all of whose names are in the new one.
func (s Store) Add(file string) (Archive, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return Archive{}, fmt.Errorf("making the folder of the images: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Archive{}, fmt.Errorf("locking the list of loaded images: %w", err)
	}
	defer lock.Close() // releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return Archive{}, fmt.Errorf("locking the list of loaded images: %w", err)
	}
	added, err := s.copyIn(file)
	if err != nil {
		return Archive{}, fmt.Errorf("loading %s: %w", file, err)
	}
	old, err := s.List()
	if err != nil {
		return Archive{}, err
	}
	// A name belongs to the last archive that has it.
	var kept, dropped []Archive
	for _, a := range old {
		if a.Digest == added.Digest {
			continue
		}
		a.Refs = slices.DeleteFunc(slices.Clone(a.Refs), func(ref string) bool { return slices.Contains(added.Refs, ref) })
		if len(a.Refs) == 0 {
			dropped = append(dropped, a)
		} else {
			kept = append(kept, a)
		}
	}
	data, err := json.MarshalIndent(append(kept, added), "", "  ")
	if err != nil {
		return Archive{}, fmt.Errorf("encoding the list of loaded images: %w", err)
	}
	if err := layout.WriteFile(filepath.Join(s.dir, "index.json"), data, 0o600); err != nil {
		return Archive{}, err
	}
	for _, a := range dropped {
		if err := os.Remove(s.Path(a)); err != nil {
			return Archive{}, fmt.Errorf("removing an image archive that was replaced: %w", err)
		}
	}
	return added, nil
}

func (s Store) copyIn(file string) (Archive, error) {
	in, err := os.Open(file)
	if err != nil {
		return Archive{}, err
	}
	defer in.Close()
	out, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return Archive{}, err
	}
	defer out.Close()
	hash := sha256.New()
	both := io.TeeReader(in, io.MultiWriter(out, hash))
	refs, err := names(both)
	if err == nil {
		// The copy includes data after the tar's end mark.
		_, err = io.Copy(io.Discard, both)
	}
	a := Archive{Digest: hex.EncodeToString(hash.Sum(nil)), Refs: refs}
	if err == nil && len(refs) == 0 {
		err = errors.New("the archive names no image: save it with a name, as in docker save NAME:TAG")
	}
	if err == nil {
		err = os.Rename(out.Name(), s.Path(a))
	}
	if err != nil {
		return Archive{}, errors.Join(err, os.Remove(out.Name()))
	}
	return a, nil
}

// The layout is Docker's or OCI's.
func names(archive io.Reader) ([]string, error) {
	var docker []struct{ RepoTags []string }
	var oci struct {
		Manifests []struct{ Annotations map[string]string }
	}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is no image archive: %w", err)
		}
		switch strings.TrimPrefix(header.Name, "./") {
		case "manifest.json":
			err = json.NewDecoder(r).Decode(&docker)
		case "index.json":
			err = json.NewDecoder(r).Decode(&oci)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s in it: %w", header.Name, err)
		}
	}
	var refs []string
	for _, m := range docker {
		refs = append(refs, m.RepoTags...)
	}
	for _, m := range oci.Manifests {
		ref := m.Annotations["io.containerd.image.name"]
		if ref == "" {
			ref = m.Annotations["org.opencontainers.image.ref.name"]
		}
		refs = append(refs, ref)
	}
	for i := range refs {
		refs[i] = FullName(refs[i])
	}
	slices.Sort(refs)
	return slices.DeleteFunc(slices.Compact(refs), func(ref string) bool { return ref == "" }), nil
}

// FullName returns the kubelet's form, with registry and tag; empty for an invalid name.
func FullName(ref string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ""
	}
	return named.String()
}

// AddBinary stores the image of one static program.
func (s Store) AddBinary(ref, binary string) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of the images: %w", err)
	}
	tmp, err := os.CreateTemp(s.dir, ".binary-*")
	if err != nil {
		return fmt.Errorf("making the archive of image %s: %w", ref, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("making the archive of image %s: %w", ref, err)
	}
	err = FromBinary(ref, binary, tmp.Name())
	if err == nil {
		_, err = s.Add(tmp.Name())
	}
	return errors.Join(err, os.Remove(tmp.Name()))
}
