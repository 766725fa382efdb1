package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// drivers loads the kernel modules that devices request. The tables are modules.dep and modules.alias in modprobe's
// formats.
type drivers struct {
	folder  string
	files   map[string][]string // of a module: its own file, then those of its dependencies
	aliases []alias

	mu   sync.Mutex
	seen map[string]bool // answered requests
}

type alias struct{ pattern, module string }

func newDrivers() (*drivers, error) {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil, fmt.Errorf("asking for the kernel's release: %w", err)
	}
	folder := "/lib/modules/" + unix.ByteSliceToString(kernel.Release[:])
	dep, err := os.ReadFile(folder + "/modules.dep")
	if errors.Is(err, os.ErrNotExist) && !loadsModules() {
		return &drivers{seen: map[string]bool{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kernel modules' needs: %w", err)
	}
	aliases, err := os.ReadFile(folder + "/modules.alias")
	if err != nil {
		return nil, fmt.Errorf("reading the kernel modules' names: %w", err)
	}
	return &drivers{
		folder:  folder,
		files:   parseDep(string(dep)),
		aliases: parseAliases(string(aliases)),
		seen:    map[string]bool{},
	}, nil
}

// loadsModules reports whether the kernel can load modules at all: one with everything built in has no list of loaded
// modules.
func loadsModules() bool {
	_, err := os.Stat("/proc/modules")
	return err == nil
}

func parseDep(text string) map[string][]string {
	files := map[string][]string{}
	for line := range strings.Lines(text) {
		file, needs, _ := strings.Cut(line, ":")
		files[moduleName(file)] = append([]string{file}, strings.Fields(needs)...)
	}
	return files
}

func parseAliases(text string) []alias {
	var aliases []alias
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "alias" {
			aliases = append(aliases, alias{pattern: fields[1], module: fields[2]})
		}
	}
	return aliases
}

func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// serve loads the modules for a device (its modalias) or for the kernel (a module's name), and reports whether the
// request was new. Most devices have a built-in driver, so an unknown request is no error.
func (d *drivers) serve(request string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[request] {
		return false, nil
	}
	d.seen[request] = true
	var errs []error
	for _, module := range d.match(request) {
		errs = append(errs, d.load(module))
	}
	return true, errors.Join(errs...)
}

func (d *drivers) match(request string) []string {
	if name := moduleName(request); d.files[name] != nil {
		return []string{name}
	}
	var modules []string
	for _, alias := range d.aliases {
		if matched, err := path.Match(alias.pattern, request); err == nil && matched {
			modules = append(modules, alias.module)
		}
	}
	return modules
}

// load loads a module after its dependencies, which follow it in the list.
func (d *drivers) load(module string) error {
	files := d.files[module]
	for i := len(files) - 1; i >= 0; i-- {
		if err := insert(filepath.Join(d.folder, files[i])); err != nil {
			return fmt.Errorf("loading the kernel module %s: %w", moduleName(files[i]), err)
		}
	}
	return nil
}

func insert(file string) error {
	module, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = module.Close() }()
	err = unix.FinitModule(int(module.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// usePluggedMemory makes the kernel use plugged memory only for movable data, so that it can be unplugged, too.
func usePluggedMemory() error {
	return os.WriteFile("/sys/devices/system/memory/auto_online_blocks", []byte("online_movable"), 0o644)
}

// Drivers make devices appear (a virtio card on its PCI device), so it repeats until a round finds nothing new.
func (d *drivers) coldplug() error {
	if len(d.files) == 0 {
		return nil
	}
	var errs []error
	for news := true; news; {
		news = false
		requests, err := filepath.Glob("/sys/bus/*/devices/*/modalias")
		if err != nil {
			return fmt.Errorf("listing the devices: %w", err)
		}
		for _, name := range requests {
			request, err := os.ReadFile(name)
			if err != nil {
				continue // the device went meanwhile
			}
			loaded, err := d.serve(strings.TrimSpace(string(request)))
			news = news || loaded
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// The kernel calls modprobe when it needs a module, for a file system say.
func modprobe(_ context.Context, args []string) error {
	drivers, err := newDrivers()
	if err != nil {
		return err
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			if _, err := drivers.serve(arg); err != nil {
				return err
			}
		}
	}
	return nil
}
