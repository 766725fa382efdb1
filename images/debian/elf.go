package debian

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// libraryFolders are Debian's folders of libraries. Packages of older releases use both.
var libraryFolders = []string{
	"/lib/x86_64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu",
}

// Libraries returns the files that the programs (paths inside the tree) need to start: the loader, and shared
// libraries. Those that a program opens at run time are left to the caller.
func (t Tree) Libraries(programs ...string) ([]string, error) {
	found := map[string]bool{}
	queue := slices.Clone(programs)
	for len(queue) > 0 {
		program := queue[0]
		queue = queue[1:]
		needed, err := t.needed(program)
		if err != nil {
			return nil, err
		}
		for _, library := range needed {
			if !found[library] {
				found[library] = true
				queue = append(queue, library)
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (t Tree) isProgram(name string) (bool, error) {
	place, err := t.Real(name)
	if err != nil {
		return false, err
	}
	file, err := os.Open(place)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	head := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(file, head); err != nil {
		return false, nil // too short for either
	}
	return string(head) == elf.ELFMAG, nil
}

func (t Tree) needed(program string) ([]string, error) {
	path, err := t.Real(program)
	if err != nil {
		return nil, err
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the program %s: %w", program, err)
	}
	defer func() { _ = file.Close() }()
	return t.neededBy(file, program)
}

// LibrariesOf is Libraries for a program outside the tree.
func (t Tree) LibrariesOf(program []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	direct, err := t.neededBy(file, "a program")
	if err != nil {
		return nil, err
	}
	further, err := t.Libraries(direct...)
	return append(direct, further...), err
}

// Errors name the program as given.
func (t Tree) neededBy(file *elf.File, program string) ([]string, error) {
	names, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("listing the libraries of %s: %w", program, err)
	}
	var paths []string
	own, err := file.DynString(elf.DT_RUNPATH)
	if err != nil {
		return nil, fmt.Errorf("reading where %s looks for libraries: %w", program, err)
	}
	for _, name := range names {
		path, err := t.findLibrary(name, own)
		if err != nil {
			return nil, fmt.Errorf("following %s: %w", program, err)
		}
		paths = append(paths, path)
	}
	loader, err := interpreter(file)
	if err != nil {
		return nil, fmt.Errorf("reading the loader of %s: %w", program, err)
	}
	if loader != "" {
		paths = append(paths, loader)
	}
	return paths, nil
}

// RUNPATH comes first, then Debian's folders.
func (t Tree) findLibrary(name string, own []string) (string, error) {
	for _, folder := range slices.Concat(own, libraryFolders) {
		path := folder + "/" + name
		if _, err := os.Lstat(t.Path(path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("library %s is in none of the Debian packages", name)
}

func interpreter(file *elf.File) (string, error) {
	for _, program := range file.Progs {
		if program.Type != elf.PT_INTERP {
			continue
		}
		path := make([]byte, program.Filesz)
		if _, err := program.ReadAt(path, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(path), "\x00"), nil
	}
	return "", nil
}
