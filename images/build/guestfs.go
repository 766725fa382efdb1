package main

import (
	"context"
	"fmt"
	"strings"

	"drydock.dev/drydock/images/appliance"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

// applianceDir is the folder of libguestfs's machine in the image.
const applianceDir = "/usr/lib/guestfs"

// upstreamNames are the paths in KubeVirt's virtctl of the pod's shell and of the machine's folder, and the shell's usual one,
// with their targets.
var upstreamNames = map[string]string{
	"/entrypoint.sh":                   "/usr/bin/bash",
	"/bin/bash":                        "/usr/bin/bash",
	"/usr/local/lib/guestfs/appliance": applianceDir,
}

// guestfsParts are the machine in which libguestfs opens disks, and the tools on top of it.
func guestfsParts(ctx context.Context, b builder) ([]part, error) {
	patterns, err := readList("libguestfs-tools/files.txt")
	if err != nil {
		return nil, err
	}
	tree, err := treeOf(ctx, b.cache, "libguestfs-tools")
	if err != nil {
		return nil, err
	}
	key, err := appliance.Key(tree)
	if err != nil {
		return nil, err
	}
	machine := func() (*rootfs.FS, error) { return machineLayer(ctx, b.cache, tree) }
	tools := func() (*rootfs.FS, error) {
		root := newBase(fmt.Sprintf("qemu:x:%d:%d:QEMU:/tmp:/bin/bash", qemuID, qemuID), fmt.Sprintf("qemu:x:%d:", qemuID))
		root.Dir("/disks", 0o755)
		for name, target := range upstreamNames {
			root.Symlink(name, target)
		}
		if err := tree.CopyBusybox(ctx, root); err != nil {
			return nil, err
		}
		return root, copyFiles(root, tree, patterns)
	}
	toolsKey := fmt.Sprint(tree.Key, " ", strings.Join(patterns, " "), upstreamNames)
	return []part{{key: key, make: machine}, {key: toolsKey, make: tools}}, nil
}

func machineLayer(ctx context.Context, cache string, tree debian.Tree) (*rootfs.FS, error) {
	files, err := appliance.Build(ctx, cache, tree)
	if err != nil {
		return nil, err
	}
	root := rootfs.New()
	for name, source := range map[string]string{"kernel": files.Kernel, "initrd": files.Initrd, "root": files.Disk} {
		if err := root.Copy(applianceDir+"/"+name, source); err != nil {
			return nil, err
		}
	}
	// libguestfs recognizes a fixed appliance by this file.
	root.File(applianceDir+"/README.fixed", 0o644, []byte("The machine in which libguestfs opens disks, made by images/appliance.\n"))
	return root, nil
}
