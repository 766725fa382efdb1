// Package prerequisites owns the table of the programs that Drydock executes on a machine, with their Debian
// packages. It reports missing programs and the command that installs them. It must not install anything: it only
// reads the file system.
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

// Purpose is a use of a program.
type Purpose string

// The purposes in the table, explained at its head.
const (
	Build  Purpose = "build"
	Run    Purpose = "run"
	Test   Purpose = "test"
	Long   Purpose = "long"
	Web    Purpose = "web"
	User   Purpose = "user"
	Never  Purpose = "never"
	Inside Purpose = "inside"
)

var purposes = []Purpose{Build, Run, Test, Long, Web, User, Never, Inside}

// Program is a line of the table.
type Program struct {
	// Name may be the absolute path of a file.
	Name string
	// Package is Debian's, empty if Drydock installs none.
	Package  string
	Purposes []Purpose
	// By is the program's user, for messages.
	By string
}

// String returns program, package and user.
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
		panic(err) // a test parses the embedded table
	}
	return programs
}

// For returns the programs for any of the purposes.
func For(wanted ...Purpose) []Program {
	return slices.DeleteFunc(All(), func(p Program) bool {
		return !slices.ContainsFunc(p.Purposes, func(has Purpose) bool { return slices.Contains(wanted, has) })
	})
}

// Missing returns those that this machine lacks.
func Missing(wanted ...Purpose) []Program {
	return missing(For(wanted...), func(name string) bool { return present(name, os.Getenv("PATH")) })
}

func missing(programs []Program, present func(name string) bool) []Program {
	return slices.DeleteFunc(programs, func(p Program) bool { return present(p.Name) })
}

// Packages returns the sorted Debian packages of the programs.
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

// InstallCommand returns the command that installs packages on Debian and Ubuntu. It needs root,
// and package lists from `apt-get update`.
func InstallCommand(packages []string) []string {
	return append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, packages...)
}

// systemFolders have root's programs. On Debian they are missing from a user's PATH, and from
// root's after a plain `su`.
var systemFolders = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// CompletePath adds the system folders to a PATH.
func CompletePath(path string) string {
	folders := filepath.SplitList(path)
	for _, folder := range systemFolders {
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}

// present reports whether a program is in a folder of the path or in a system folder. For an
// absolute name it reports whether the file exists.
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
