package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/internal/handler/podpath"
)

const (
	// maxFile limits one file of a ConfigMap or Secret, and maxTotal a volume's files, in bytes: both kinds hold at
	// most 1 MiB. Sizes are checked first, since anyone may have written the pod's files.
	maxFile   = 2 << 20
	maxTotal  = 2 << 20
	maxFolder = 4096
)

// Pod is the pod in which a Plan is applied.
type Pod struct {
	Root *podpath.Dir
	// User is QEMU's uid and gid.
	User int
	// Capacity returns a claim's capacity in bytes.
	Capacity func(ctx context.Context, claim string) (int64, error)
	// Tolerated is how many percent a new disk may be smaller than its claim.
	Tolerated int
}

// Apply creates all missing files.
func (p Plan) Apply(ctx context.Context, pod Pod) error {
	for _, image := range p.Images {
		if err := image.make(pod); err != nil {
			return fmt.Errorf("preparing volume %s: %w", image.Volume, err)
		}
	}
	if p.Ignition != "" {
		if err := makeFile(pod, layout.IgnitionFile(), func(f *os.File) error {
			_, err := f.WriteString(p.Ignition)
			return err
		}); err != nil {
			return fmt.Errorf("preparing the guest's Ignition configuration: %w", err)
		}
	}
	if p.State != nil {
		if err := p.State.make(pod); err != nil {
			return fmt.Errorf("preparing what is kept of the VM: %w", err)
		}
	}
	for _, raw := range p.Raws {
		if err := raw.Make(ctx, pod); err != nil {
			return fmt.Errorf("preparing volume %s: %w", raw.Volume, err)
		}
	}
	return nil
}

func (i Image) make(pod Pod) error {
	return makeFile(pod, layout.ISOFile(i.Volume), func(f *os.File) error {
		files, err := i.gather(pod.Root)
		if err != nil {
			return err
		}
		return iso.Write(f, i.Label, files)
	})
}

// makeFile makes a missing file, at once complete. QEMU may write to it: a SATA disk can't be read-only.
func makeFile(pod Pod, target string, write func(*os.File) error) error {
	// The guest's process can write here.
	folder, err := pod.Root.Strict(path.Dir(target))
	if err != nil {
		return err
	}
	defer folder.Close()
	if exists, err := folder.Exists(path.Base(target)); err != nil || exists {
		return err
	}
	return folder.Create(path.Base(target), pod.User, 0o640, write)
}

func (i Image) gather(root *podpath.Dir) ([]iso.File, error) {
	files := append([]iso.File(nil), i.Files...)
	for _, c := range i.Copies {
		data, err := c.read(root)
		if err != nil {
			return nil, err
		}
		files = append(files, iso.File{Path: c.Path, Data: data})
	}
	if err := i.Keys.addTo(files, root); err != nil {
		return nil, err
	}
	if i.Folder == "" {
		return files, nil
	}
	copied, err := readFolder(root, i.Folder)
	if errors.Is(err, fs.ErrNotExist) && i.Optional {
		return files, nil
	}
	if err != nil {
		return nil, err
	}
	isAnyOf := func(f iso.File) bool {
		return slices.ContainsFunc(i.AnyOf, func(name string) bool { return strings.EqualFold(name, f.Path) })
	}
	if len(i.AnyOf) > 0 && !slices.ContainsFunc(copied, isAnyOf) {
		return nil, fmt.Errorf("its ConfigMap or Secret has no %s", strings.Join(i.AnyOf, " or "))
	}
	return append(files, copied...), nil
}

func (c Copy) read(root *podpath.Dir) ([]byte, error) {
	for _, key := range c.Keys {
		data, err := root.ReadFile(path.Join(c.Folder, key), maxFile)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return nil, fmt.Errorf("%s has no key %s", c.Of, strings.Join(c.Keys, " or "))
}

func readFolder(root *podpath.Dir, folder string) ([]iso.File, error) {
	names, err := listFolder(root, folder)
	if err != nil {
		return nil, err
	}
	files := make([]iso.File, 0, len(names))
	left := int64(maxTotal)
	for _, name := range names {
		// The size may have changed since the check.
		data, err := root.ReadFile(path.Join(folder, name), min(left, maxFile))
		if err != nil {
			return nil, err
		}
		left -= int64(len(data))
		files = append(files, iso.File{Path: name, Data: data})
	}
	return files, nil
}

// listFolder lists the files of a volume within the limits. Names that begin with two dots are the kubelet's
// (..data); the others are links through them.
func listFolder(root *podpath.Dir, folder string) (names []string, err error) {
	pending := []string{""}
	seen, total := 0, int64(0)
	for len(pending) > 0 {
		dir := pending[0]
		pending = pending[1:]
		entries, err := root.ReadDir(path.Join(folder, dir), maxFolder)
		if err != nil {
			return nil, err
		}
		if seen += len(entries); seen > maxFolder {
			return nil, fmt.Errorf("%s holds more than %d files", folder, maxFolder)
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if strings.HasPrefix(entry.Name(), "..") {
				continue
			}
			if isDir, err := root.IsDir(path.Join(folder, name)); err != nil {
				return nil, err
			} else if isDir {
				pending = append(pending, name)
				continue
			}
			size, err := root.FileSize(path.Join(folder, name))
			if err != nil {
				return nil, err
			}
			if total += size; size > maxFile || total > maxTotal {
				return nil, fmt.Errorf("the files of %s hold more than the %d bytes that a ConfigMap or Secret can", folder, maxTotal)
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// Make makes a missing file and gives the disk to QEMU's user. A read-only disk must exist.
func (r Raw) Make(ctx context.Context, pod Pod) error {
	if r.Device != "" {
		switch isDevice, err := pod.Root.Exists(r.Device); {
		case err != nil:
			return err
		case isDevice && r.ReadOnly:
			return nil
		case isDevice:
			return pod.Root.OwnDevice(r.Device, pod.User)
		}
	}
	folder, err := pod.Root.Strict(r.Folder)
	if err != nil {
		return err
	}
	defer folder.Close()
	return r.MakeIn(ctx, folder, pod)
}

// MakeIn is Make for an image in an open folder.
func (r Raw) MakeIn(ctx context.Context, folder *podpath.Dir, pod Pod) error {
	exists, err := folder.Exists(r.Name)
	switch {
	case err != nil:
		return err
	case r.ReadOnly && !exists:
		return fmt.Errorf("PVC %s is empty: its file system has no %s, and what is only read is not made; "+
			"fill the claim by a DataVolume or by virtctl image-upload, or name another one", r.Claim, r.Name)
	case r.ReadOnly:
		return nil
	case exists:
		return folder.OwnFile(r.Name, pod.User)
	}
	size, err := r.size(ctx, folder, pod)
	if err != nil {
		return fmt.Errorf("creating %s: %w", r.Name, err)
	}
	return folder.Create(r.Name, pod.User, 0o660, func(f *os.File) error {
		if err := f.Truncate(size); err != nil {
			return fmt.Errorf("sizing %s to %d bytes: %w", r.Name, size, err)
		}
		return nil
	})
}

func (r Raw) size(ctx context.Context, folder *podpath.Dir, pod Pod) (int64, error) {
	wanted := r.Size
	switch {
	case r.Exact:
		return wanted, nil
	case r.Claim != "":
		var err error
		if wanted, err = pod.Capacity(ctx, r.Claim); err != nil {
			return 0, err
		}
	case wanted == 0:
		return 0, errors.New("it does not exist, and the hostDisk's type is not DiskOrCreate")
	}
	available, err := folder.Available()
	if err != nil {
		return 0, err
	}
	return ImageSize(wanted, available, pod.Tolerated)
}

var devices = []string{layout.KVMDevice, layout.TUNDevice, layout.VhostNetDevice}

const maxPassed = 512

// OwnDevices gives QEMU's user the pod's device nodes, which are copies of the node's.
func OwnDevices(pod Pod) error {
	passed, err := pod.Root.ReadDir(layout.VFIODir, maxPassed)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	list := slices.Clone(devices)
	for _, entry := range passed {
		if entry.Type()&fs.ModeCharDevice != 0 {
			list = append(list, path.Join(layout.VFIODir, entry.Name()))
		}
	}
	for _, device := range list {
		err := pod.Root.OwnDevice(device, pod.User)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
