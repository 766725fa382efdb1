package appliance

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

// first are the modules for the disk and for the channel to libguestfs's daemon. Their dependencies are loaded
// before them. Built-in ones are skipped.
var first = []string{"virtio_pci", "virtio_scsi", "virtio_blk", "sd_mod", "ext4", "virtio-rng", "virtio_console", "virtio_net"}

// writeInitrd writes the initramfs. It takes the modules from the machine's file system, where depmod has run.
func writeInitrd(to, machine string, tree debian.Tree) error {
	root := rootfs.New()
	for _, name := range []string{"/dev", "/proc", "/sys", "/root"} {
		root.Dir(name, 0o755)
	}
	root.CharDevice("/dev/console", 0o600, 5, 1)
	if err := root.Copy("/bin/busybox", tree.Path("/bin/busybox")); err != nil {
		return err
	}
	init, err := fs.ReadFile(source, "init")
	if err != nil {
		return fmt.Errorf("reading the first program: %w", err)
	}
	root.File("/init", 0o755, init)
	folders, err := filepath.Glob(filepath.Join(machine, "lib/modules/*"))
	if err != nil {
		return fmt.Errorf("looking for the modules of libguestfs's machine: %w", err)
	}
	if len(folders) != 1 {
		return fmt.Errorf("looking for the modules of libguestfs's machine: there are %d folders", len(folders))
	}
	needs, err := os.ReadFile(filepath.Join(folders[0], "modules.dep"))
	if err != nil {
		return fmt.Errorf("reading what modules depend on: %w", err)
	}
	var order []string
	for _, file := range inOrder(string(needs), first) {
		name := path.Base(file)
		order = append(order, name)
		if err := root.Copy("/lib/"+name, filepath.Join(folders[0], file)); err != nil {
			return err
		}
	}
	root.File("/modules", 0o644, []byte(strings.Join(order, "\n")+"\n"))
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("packing the initramfs: %w", err)
	}
	if err := root.WriteCPIO(writer); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return fmt.Errorf("packing the initramfs: %w", err)
	}
	if err := os.WriteFile(to, packed.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	return nil
}

// needs is depmod's modules.dep: each line has a module and its dependencies, in reverse load order.
func inOrder(needs string, modules []string) []string {
	var order []string
	for _, module := range modules {
		for line := range strings.Lines(needs) {
			file, before, _ := strings.Cut(strings.TrimSpace(line), ":")
			if path.Base(file) != module+".ko" {
				continue
			}
			chain := append([]string{file}, strings.Fields(before)...)
			slices.Reverse(chain)
			for _, one := range chain {
				if !slices.Contains(order, one) {
					order = append(order, one)
				}
			}
		}
	}
	return order
}
