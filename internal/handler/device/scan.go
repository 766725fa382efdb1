package device

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

const pciDevices = "bus/pci/devices"

// scan reads the node's PCI devices. One that vanishes meanwhile is left out.
func scan(sys, dev fs.FS) ([]hostdevice.Found, error) {
	entries, err := fs.ReadDir(sys, pciDevices)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a machine without PCI
	}
	if err != nil {
		return nil, fmt.Errorf("listing the PCI devices: %w", err)
	}
	var found []hostdevice.Found
	for _, entry := range entries {
		if !sriov.IsAddress(entry.Name()) {
			continue
		}
		f, err := inspect(sys, dev, entry.Name())
		switch {
		case gone(err):
		case err != nil:
			return nil, fmt.Errorf("reading the PCI device %s: %w", entry.Name(), err)
		default:
			found = append(found, f)
		}
	}
	return found, nil
}

func inspect(sys, dev fs.FS, address string) (hostdevice.Found, error) {
	f := hostdevice.Found{Address: address, NUMA: -1}
	values := map[string]string{}
	for _, name := range []string{"vendor", "device", "class"} {
		data, err := fs.ReadFile(sys, path.Join(pciDevices, address, name))
		if err != nil {
			return f, err
		}
		values[name] = strings.TrimSpace(string(data))
	}
	f.Kind = strings.TrimPrefix(values["vendor"], "0x") + ":" + strings.TrimPrefix(values["device"], "0x")
	f.Class = values["class"]
	// Kernels without NUMA have no such file.
	if data, err := fs.ReadFile(sys, path.Join(pciDevices, address, "numa_node")); err == nil {
		if number, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 32); err == nil {
			f.NUMA = number
		}
	} else if !gone(err) {
		return f, err
	}
	var err error
	if f.Driver, err = linked(sys, path.Join(pciDevices, address, "driver")); err != nil {
		return f, err
	}
	if f.Group, err = linked(sys, path.Join(pciDevices, address, "iommu_group")); err != nil || f.Group == "" {
		return f, err
	}
	switch _, err := fs.Stat(dev, path.Join(path.Base(layout.VFIODir), f.Group)); {
	case err == nil:
		f.Node = true
	case !errors.Is(err, fs.ErrNotExist):
		return f, err
	}
	return f, nil
}

// linked returns the name of a link's target, "" without a link.
func linked(sys fs.FS, name string) (string, error) {
	target, err := fs.ReadLink(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path.Base(target), err
}

// gone means that the device vanished: reading a file that was open then fails with ENODEV.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
