// Package prerequisites owns the table of the programs that Drydock executes on a
// machine, with the Debian packages that have them. It says which are missing and
// how they are installed; it installs nothing and looks at nothing but files.
package prerequisites

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed programs.txt
var table string

// Purpose is what a program is needed for.
type Purpose string

// The purposes of the table; its head says what they mean.
const (
	Build  Purpose = "build"
	Run    Purpose = "run"
	Test   Purpose = "test"
	User   Purpose = "user"
	Never  Purpose = "never"
	Inside Purpose = "inside"
)

var purposes = []Purpose{Build, Run, Test, User, Never, Inside}

// Program is one line of the table.
type Program struct {
	// Name is the program as it is executed, or the absolute path of a file.
	Name string
	// Package is the Debian package that has it, empty where Drydock installs none.
	Package  string
	Purposes []Purpose
	// By names who executes the program.
	By string
}

// String names the program, its package and its user.
func (p Program) String() string {
	if p.Package == "" {
		return fmt.Sprintf("%s (for %s)", p.Name, p.By)
	}
	return fmt.Sprintf("%s (package %s; for %s)", p.Name, p.Package, p.By)
}

// All returns the whole table.
func All() []Program {
	programs, err := parse(table)
	if err != nil {
		panic(err) // the table is part of the program, and a test reads it
	}
	return programs
}

// For returns the programs that are needed for any of the purposes.
func For(wanted ...Purpose) []Program {
	return slices.DeleteFunc(All(), func(p Program) bool {
		return !slices.ContainsFunc(p.Purposes, func(has Purpose) bool { return slices.Contains(wanted, has) })
	})
}

// Missing returns the programs that are needed for any of the purposes and are
// not on this machine.
func Missing(wanted ...Purpose) []Program {
	return missing(For(wanted...), func(name string) bool { return present(name, os.Getenv("PATH")) })
}

func missing(programs []Program, present func(name string) bool) []Program {
	return slices.DeleteFunc(programs, func(p Program) bool { return present(p.Name) })
}

// Packages returns the Debian packages of the programs, each once, sorted.
func Packages(programs []Program) []string {
	var packages []string
	for _, p := range programs {
		if p.Package != "" {
			packages = append(packages, p.Package)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// InstallCommand is the command that installs packages on Debian and Ubuntu. It
// wants root, and lists of packages that `apt-get update` has fetched.
func InstallCommand(packages []string) []string {
	return append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, packages...)
}

// systemFolders hold what root executes. A user's PATH lacks them on Debian, and so
// does root's after a plain `su`.
var systemFolders = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// CompletePath returns a PATH with the folders of system programs in it.
func CompletePath(path string) string {
	folders := filepath.SplitList(path)
	for _, folder := range systemFolders {
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}

// present reports whether a program is in a folder of the path or in one of the
// system's, or whether a file is there.
func present(name, path string) bool {
	if filepath.IsAbs(name) {
		_, err := os.Stat(name)
		return err == nil
	}
	return slices.ContainsFunc(filepath.SplitList(CompletePath(path)), func(folder string) bool {
		_, err := exec.LookPath(filepath.Join(folder, name))
		return err == nil && filepath.IsAbs(folder)
	})
}

// parse reads the table.
func parse(text string) ([]Program, error) {
	var programs []Program
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := parseLine(line)
		if err != nil {
			return nil, err
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("reading the table of programs: %s has two lines", p.Name)
		}
		seen[p.Name] = true
		programs = append(programs, p)
	}
	return programs, nil
}

func parseLine(line string) (Program, error) {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return Program{}, fmt.Errorf("reading the table of programs: %q lacks a column: want program, package, purposes and by whom it is executed", line)
	}
	p := Program{Name: fields[0], Package: fields[1], By: strings.Join(fields[3:], " ")}
	if p.Package == "-" {
		p.Package = ""
	}
	for purpose := range strings.SplitSeq(fields[2], ",") {
		if !slices.Contains(purposes, Purpose(purpose)) {
			return Program{}, fmt.Errorf("reading the table of programs: %q is no purpose of %s: want some of %q", purpose, p.Name, purposes)
		}
		p.Purposes = append(p.Purposes, Purpose(purpose))
	}
	return p, nil
}
