package podpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Volumes finds the persistent volumes of pods where the kubelet has set them up, and nowhere else: a container's
// file system, device nodes included, comes from the author of its image.
type Volumes struct {
	Kubelet string
	// Host is the node's root directory, for the kubelet's links to devices.
	Host string
	// Nodes is a folder in which device nodes can be made and opened.
	Nodes string
}

// VolumeID identifies a pod's persistent volume.
type VolumeID struct {
	// Pod is the pod's UID, Name the persistent volume's name.
	Pod, Name string
	Block     bool
	// HostPath is for a hostPath volume, for which the kubelet keeps no entry; empty for others.
	HostPath string
}

// Volume is an open persistent volume. Either Folder or device is set.
type Volume struct {
	// No symlink beneath Folder, the root of a file system, is followed.
	Folder *Dir
	device *entry
	nodes  string
	label  Labeler
}

const emptyDirPlugin = "kubernetes.io~empty-dir"

// EmptyDir returns the path of an emptyDir volume beneath the kubelet's folder of the pod.
func EmptyDir(volume string) string { return filepath.Join("volumes", emptyDirPlugin, volume) }

// Plugins whose volumes are named by a pod's author.
var unnamedPlugins = []string{
	emptyDirPlugin, "kubernetes.io~configmap", "kubernetes.io~secret",
	"kubernetes.io~projected", "kubernetes.io~downward-api", "kubernetes.io~git-repo",
}

// Plugins whose mount is in a subfolder of the volume's folder.
var mountFolder = map[string]string{"kubernetes.io~csi": "mount"}

// Open opens a volume. It stays usable when the kubelet tears the volume down, and does not prevent that (decision
// 217).
func (v Volumes) Open(id VolumeID) (*Volume, error) {
	for what, name := range map[string]string{"pod UID": id.Pod, "volume name": id.Name} {
		if name == "" || name == ".." || name == "." || strings.ContainsRune(name, filepath.Separator) {
			return nil, fmt.Errorf("opening volume %q of pod %q: the %s is no name", id.Name, id.Pod, what)
		}
	}
	found, err := v.find(id)
	if err != nil {
		return nil, fmt.Errorf("opening volume %s of pod %s: %w", id.Name, id.Pod, err)
	}
	defer found.close()
	kind := uint32(unix.S_IFDIR)
	if id.Block {
		kind = unix.S_IFBLK
	}
	if !found.is(kind) {
		return nil, fmt.Errorf("opening volume %s of pod %s: %s has mode %o, which is not that of a %s",
			id.Name, id.Pod, found.path, found.stat.Mode, map[bool]string{true: "block device", false: "folder"}[id.Block])
	}
	own, err := found.detach()
	if err != nil {
		return nil, fmt.Errorf("opening volume %s of pod %s: %w", id.Name, id.Pod, err)
	}
	if id.Block {
		return &Volume{device: own, nodes: v.Nodes}, nil
	}
	return &Volume{Folder: &Dir{file: os.NewFile(uintptr(own.fd), own.path), path: own.path, resolve: strict}}, nil
}

func (v Volumes) find(id VolumeID) (*entry, error) {
	switch {
	case id.HostPath != "":
		return v.onHost(id.HostPath)
	case id.Block:
		return v.findDevice(id)
	}
	// Without the kubelet's mount, the folder is an empty one on the node's file system, where a new disk would belong to
	// nobody.
	found, err := v.findMountFolder(id)
	if err != nil {
		return nil, err
	}
	if err := found.mustBeMounted(); err != nil {
		found.close()
		return nil, err
	}
	return found, nil
}

func (v Volumes) findMountFolder(id VolumeID) (*entry, error) {
	folder, plugin, err := v.entryOf(id, "volumes", unix.O_DIRECTORY)
	if err != nil || mountFolder[plugin] == "" {
		return folder, err
	}
	defer folder.close()
	fd, err := unix.Openat2(folder.fd, mountFolder[plugin], &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: strict,
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s/%s: %w", folder.path, mountFolder[plugin], err)
	}
	return newEntry(fd, filepath.Join(folder.path, mountFolder[plugin]))
}

func (v Volumes) findDevice(id VolumeID) (*entry, error) {
	link, _, err := v.entryOf(id, "volumeDevices", unix.O_NOFOLLOW)
	if err != nil || !link.is(unix.S_IFLNK) {
		return link, err
	}
	defer link.close()
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link.fd, "", target)
	if err != nil {
		return nil, fmt.Errorf("reading the link %s: %w", link.path, err)
	}
	return v.onHost(string(target[:n]))
}

// onHost opens a path on the node. One in the kubelet's folder is opened in the folder mounted here: the kubelet's
// mounts may be hidden from the node's first process.
func (v Volumes) onHost(path string) (*entry, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is no absolute path", path)
	}
	base, onNode := v.Host, true
	if rel, err := filepath.Rel(v.Kubelet, path); err == nil && filepath.IsLocal(rel) {
		base, path, onNode = v.Kubelet, rel, false
	}
	root, err := OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	found, err := root.find(path, 0)
	if err == nil {
		found.onNode = onNode
	}
	return found, err
}

func (v Volumes) entryOf(id VolumeID, folder string, flags int) (found *entry, plugin string, err error) {
	base, err := Open(v.Kubelet)
	if err != nil {
		return nil, "", err
	}
	defer base.Close()
	dir := filepath.Join("pods", id.Pod, folder)
	plugins, err := base.ReadDir(dir, maxPlugins)
	if err != nil {
		return nil, "", err
	}
	for _, p := range plugins {
		if slices.Contains(unnamedPlugins, p.Name()) {
			continue
		}
		e, err := base.find(filepath.Join(dir, p.Name(), id.Name), flags)
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, "", err
		case found != nil:
			e.close()
			found.close()
			return nil, "", fmt.Errorf("both %s and %s have it", found.path, e.path)
		default:
			found, plugin = e, p.Name()
		}
	}
	if found == nil {
		return nil, "", fmt.Errorf("the kubelet has not set it up in %s/%s: %w", v.Kubelet, dir, unix.ENOENT)
	}
	return found, plugin, nil
}

// maxPlugins limits the volume plugins of one pod; a kubelet has about ten.
const maxPlugins = 256

// Close closes the volume. Files opened from it stay open.
func (v *Volume) Close() {
	if v.Folder != nil {
		v.Folder.Close()
	} else {
		v.device.close()
	}
}

// Label sets the label of new files in the volume and of the node for its device; nil changes nothing.
func (v *Volume) Label(label Labeler) {
	v.label = label
	if v.Folder != nil {
		v.Folder.LabelNew(label)
	}
}

// Device opens the block device. With a label, it opens it through a separate node: SELinux checks each user of the
// descriptor against the label of that node, and the host's own node has the label of the host's disks.
func (v *Volume) Device(flags int) (*os.File, error) {
	if v.device == nil {
		return nil, fmt.Errorf("opening %s: it is no block device", v.Folder.path)
	}
	if v.label == nil {
		return v.device.reopen(flags)
	}
	dir, err := os.MkdirTemp(v.nodes, "volume-")
	if err != nil {
		return nil, fmt.Errorf("making a device node for %s: %w", v.device.path, err)
	}
	// The open descriptor remains valid.
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "disk")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(v.device.stat.Rdev)); err != nil {
		return nil, fmt.Errorf("making a device node for %s: %w", v.device.path, err)
	}
	if err := v.label(path); err != nil {
		return nil, fmt.Errorf("making a device node for %s: %w", v.device.path, err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a device node for %s: %w", v.device.path, err)
	}
	node, err := newEntry(fd, v.device.path)
	if err != nil {
		return nil, err
	}
	defer node.close()
	return node.reopen(flags)
}
