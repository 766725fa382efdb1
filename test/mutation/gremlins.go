package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// mutators are all of gremlins' mutators, because each of them changes a decision.
var mutators = []string{
	"arithmetic-base", "conditionals-boundary", "conditionals-negation", "increment-decrement", "invert-assignments",
	"invert-bitwise", "invert-bwassign", "invert-logical", "invert-loopctrl", "invert-negatives", "remove-self-assignments",
}

type gremlinsReport struct {
	Files []struct {
		Name      string             `json:"file_name"`
		Mutations []gremlinsMutation `json:"mutations"`
	} `json:"files"`
}

type gremlinsMutation struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// gremlins' names for the results of mutants. Only these occur, because all mutants are run.
const (
	statusKilled    = "KILLED"
	statusLived     = "LIVED"
	statusNotViable = "NOT VIABLE"
)

func (f *workingFolder) test(ctx context.Context, gremlins, pkg string, workers int) (r result, err error) {
	scratch := filepath.Join(f.path, "scratch")
	// Left by a killed run.
	if err := os.RemoveAll(scratch); err != nil {
		return r, fmt.Errorf("removing what the last run left: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	run, err := prepareRun(f.source(), scratch, pkg)
	if err != nil {
		return r, err
	}
	report := filepath.Join(scratch, "report.json")
	// This program limits the time, so gremlins' own limit must never be reached.
	args := []string{"unleash", "--output", report, "--workers", strconv.Itoa(workers), "--timeout-coefficient", "10000"}
	for _, mutator := range mutators {
		args = append(args, "--"+mutator)
	}
	cmd := exec.CommandContext(ctx, gremlins, args...)
	cmd.Dir = run.original()
	cmd.Env = append(os.Environ(), runVariable+"="+run.file(), "TMPDIR="+run.temporary(),
		"PATH="+run.commands()+string(filepath.ListSeparator)+os.Getenv("PATH"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// The tests of mutants are children of gremlins and must end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if trouble := run.trouble(); trouble != "" {
		return r, errors.New(trouble)
	}
	if err != nil {
		return r, fmt.Errorf("running gremlins: %w\n%s", err, said.String())
	}
	return readResult(run, report)
}

// prepareRun creates a module with only the package, because gremlins copies the whole module for
// each worker, and a command `go` that is this program.
func prepareRun(source, scratch, pkg string) (mutationRun, error) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return mutationRun{}, fmt.Errorf("finding the Go tool: %w", err)
	}
	run := mutationRun{Go: goTool, Source: source, Package: pkg, Scratch: scratch, More: usualMore}
	if run.Flags, err = testFlags(filepath.Join(source, pkg)); err != nil {
		return run, err
	}
	self, err := os.Executable()
	if err != nil {
		return run, fmt.Errorf("finding this program: %w", err)
	}
	for _, folder := range []string{run.commands(), run.temporary(), run.original()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return run, fmt.Errorf("preparing the mutation: %w", err)
		}
	}
	if err := os.Symlink(self, filepath.Join(run.commands(), "go")); err != nil {
		return run, fmt.Errorf("preparing the command go: %w", err)
	}
	if err := copyFile(filepath.Join(source, "go.mod"), filepath.Join(scratch, "module", "go.mod")); err != nil {
		return run, fmt.Errorf("copying the module: %w", err)
	}
	files, err := sourceFiles(filepath.Join(source, pkg))
	if err != nil {
		return run, err
	}
	for _, name := range files {
		if err := copyFile(filepath.Join(source, pkg, name), filepath.Join(run.original(), name)); err != nil {
			return run, fmt.Errorf("copying the package: %w", err)
		}
	}
	return run, run.write()
}

// Property tests (pgregory.net/rapid) must draw the same cases in every run, so that a mutant's result is
// reproducible, and neither shrink a failing case nor save it for the next mutant.
func testFlags(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("looking for the tests of the package: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a test: %w", err)
		}
		if bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}, nil
		}
	}
	return nil, nil
}

func (r mutationRun) write() error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the run's settings: %w", err)
	}
	return os.WriteFile(r.file(), text, 0o644)
}

func sourceFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("listing the files of the package: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if isSource(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func readResult(run mutationRun, file string) (result, error) {
	r := result{pkg: run.Package, hung: run.hung()}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) { // nothing to mutate
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reading the report of gremlins: %w", err)
	}
	var report gremlinsReport
	if err := json.Unmarshal(text, &report); err != nil {
		return r, fmt.Errorf("reading the report of gremlins: %w", err)
	}
	for _, f := range report.Files {
		source, err := parseSource(filepath.Join(run.original(), f.Name))
		if err != nil {
			return r, err
		}
		for _, m := range f.Mutations {
			if err := r.add(source, f.Name, m); err != nil {
				return r, err
			}
		}
	}
	r.explained, err = readExplanations(filepath.Join(run.Source, run.Package, explanationsFile))
	return r, err
}

func (r *result) add(source sourceFile, file string, m gremlinsMutation) error {
	switch m.Status {
	case statusKilled:
		r.killed++
	case statusNotViable:
		r.notViable++
	case statusLived:
		survivor, err := source.mutant(m)
		if err != nil {
			return fmt.Errorf("%s:%d:%d: %w", file, m.Line, m.Column, err)
		}
		survivor.position = fmt.Sprintf("%s/%s:%d:%d", r.pkg, file, m.Line, m.Column)
		r.survivors = append(r.survivors, survivor)
	default:
		return fmt.Errorf("%s:%d:%d: the mutant %s ended as %q, which must not happen", file, m.Line, m.Column,
			strings.ToLower(m.Type), m.Status)
	}
	return nil
}
