package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/images/debian"
)

type kernelModule struct {
	name string
	// path is below the kernel's module folder.
	path    string
	data    []byte
	depends []string
	aliases []string
}

type moduleSet struct {
	folder  string // on this machine, of the kernel package
	files   map[string]string
	builtin map[string]bool
	chosen  map[string]kernelModule
}

// Dependencies come with the named modules.
func chooseModules(ctx context.Context, folder string, names []string) (*moduleSet, error) {
	set := &moduleSet{
		folder:  folder,
		files:   map[string]string{},
		builtin: map[string]bool{},
		chosen:  map[string]kernelModule{},
	}
	if err := set.index(); err != nil {
		return nil, err
	}
	queue := slices.Clone(names)
	for len(queue) > 0 {
		name := moduleName(queue[0])
		queue = queue[1:]
		if _, done := set.chosen[name]; done || set.builtin[name] {
			continue
		}
		module, err := set.read(ctx, name)
		if err != nil {
			return nil, err
		}
		set.chosen[name] = module
		queue = append(queue, module.depends...)
	}
	return set, nil
}

func (s *moduleSet) index() error {
	builtin, err := readLines(filepath.Join(s.folder, "modules.builtin"))
	if err != nil {
		return fmt.Errorf("reading the list of built-in modules: %w", err)
	}
	for _, path := range builtin {
		s.builtin[moduleName(path)] = true
	}
	err = filepath.WalkDir(filepath.Join(s.folder, "kernel"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(debian.PlainModule(path), ".ko") {
			s.files[moduleName(path)] = strings.TrimPrefix(path, s.folder+"/")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the kernel's modules: %w", err)
	}
	return nil
}

func (s *moduleSet) read(ctx context.Context, name string) (kernelModule, error) {
	module := kernelModule{name: name, path: debian.PlainModule(s.files[name])}
	if module.path == "" {
		return module, fmt.Errorf("choosing kernel modules: this kernel has no module %s", name)
	}
	var err error
	if module.data, err = debian.ReadModule(ctx, filepath.Join(s.folder, s.files[name])); err != nil {
		return module, err
	}
	file, err := elf.NewFile(bytes.NewReader(module.data))
	if err != nil {
		return module, fmt.Errorf("reading the kernel module %s: %w", name, err)
	}
	section := file.Section(".modinfo")
	if section == nil {
		return module, fmt.Errorf("reading the kernel module %s: it says nothing about itself", name)
	}
	info, err := section.Data()
	if err != nil {
		return module, fmt.Errorf("reading the kernel module %s: %w", name, err)
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "alias":
			module.aliases = append(module.aliases, value)
		case "depends":
			module.depends = slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "" })
		}
	}
	return module, nil
}

// dep renders modules.dep: every module with all its dependencies, in modprobe's order, in which the first to be loaded
// is last.
func (s *moduleSet) dep() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(s.chosen)) {
		order := s.loadOrder(name, nil)
		slices.Reverse(order)
		fmt.Fprintf(&out, "%s:", s.chosen[name].path)
		for _, needed := range order[1:] {
			fmt.Fprintf(&out, " %s", s.chosen[needed].path)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func (s *moduleSet) loadOrder(name string, order []string) []string {
	for _, needed := range s.chosen[name].depends {
		needed = moduleName(needed)
		if _, loadable := s.chosen[needed]; loadable && !slices.Contains(order, needed) {
			order = s.loadOrder(needed, order)
		}
	}
	return append(order, name)
}

// The file maps devices and file systems to modules.
func (s *moduleSet) alias() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(s.chosen)) {
		for _, alias := range s.chosen[name].aliases {
			fmt.Fprintf(&out, "alias %s %s\n", alias, name)
		}
	}
	return out.Bytes()
}

func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(debian.PlainModule(path)), ".ko"), "-", "_")
}
