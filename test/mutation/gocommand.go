package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// runVariable makes this program act as gremlins' command `go`. Its value is the file with the settings.
const runVariable = "DRYDOCK_MUTATION_RUN"

// Exit codes of the command go, as gremlins interprets them.
const (
	exitLived     = 0
	exitKilled    = 1
	exitNotViable = 2
)

// A mutant hangs if its tests take far more CPU time than the unchanged package's, which is
// independent of the machine's load. One that waits without using the CPU ends by the clock. The
// memory is limited because an endless loop may append.
const (
	cpuFactor, clockFactor = 5, 20
	memoryLimit            = 3 << 30
)

// usualMore is added to the multiple of the tests' usual time.
var usualMore = duration{CPU: 10 * time.Second, Clock: 2 * time.Minute}

// quick is the CPU time up to which all tests of a package run at once. In slower packages the
// tests of -short run first, which kill most mutants.
const quick = 2 * time.Second

type mutationRun struct {
	Go      string // path of the Go tool
	Source  string // copy of the repository
	Package string // the package's folder below it
	Scratch string
	More    duration // see usualMore
	Flags   []string // for the package's test program
}

func (r mutationRun) file() string      { return filepath.Join(r.Scratch, "run.json") }
func (r mutationRun) commands() string  { return filepath.Join(r.Scratch, "bin") }
func (r mutationRun) temporary() string { return filepath.Join(r.Scratch, "tmp") }
func (r mutationRun) original() string  { return filepath.Join(r.Scratch, "module", r.Package) }

type duration struct{ CPU, Clock time.Duration }

type baseline struct{ Short, All duration }

func (r mutationRun) baselineFile() string { return filepath.Join(r.Scratch, "baseline.json") }
func (r mutationRun) hungFile() string     { return filepath.Join(r.Scratch, "hung") }
func (r mutationRun) troubleFile() string  { return filepath.Join(r.Scratch, "trouble") }

// hung returns how many mutants were killed because they hung.
func (r mutationRun) hung() int {
	text, err := os.ReadFile(r.hungFile())
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte("\n"))
}

// trouble returns the error that prevented a mutant's test.
func (r mutationRun) trouble() string {
	text, err := os.ReadFile(r.troubleFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Several mutants are tested at a time.
func note(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

// goCommand implements gremlins' calls of the Go tool and returns the exit code: it downloads
// modules, runs the tests with coverage, or runs the tests of the mutant in the working directory.
// An error is recorded and ends the whole package's run.
func goCommand(settings string, args []string) int {
	var run mutationRun
	text, err := os.ReadFile(settings)
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the settings of the mutation:", err)
		return exitNotViable
	}
	code, err := exitLived, error(nil)
	switch profile := argument(args, "-coverprofile"); {
	case len(args) > 0 && args[0] == "mod":
		// Listing the packages has downloaded their dependencies; go.mod names far more.
	case profile != "":
		err = run.measure(profile)
	case len(args) > 0 && args[0] == "test":
		code, err = run.testMutant()
	default:
		err = fmt.Errorf("gremlins called go with unknown arguments: %s", strings.Join(args, " "))
	}
	if err != nil {
		if err := note(run.troubleFile(), err.Error()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return exitNotViable
	}
	return code
}

func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// measure runs the unchanged package's tests and writes a profile that covers every line, so that
// gremlins runs each mutant. Go's own profile has no blocks for the conditions of switch cases and
// for declarations.
func (r mutationRun) measure(profile string) error {
	program := filepath.Join(r.Scratch, "original.test")
	if out, err := r.compile(program); err != nil {
		return fmt.Errorf("compiling the tests of %s: %w\n%s", r.Package, err, out)
	}
	var measured baseline
	for _, part := range []struct {
		took *duration
		args []string
	}{{&measured.Short, []string{"-test.short"}}, {&measured.All, nil}} {
		cmd := r.tests(program, part.args...)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", r.Package, err, out)
		}
		*part.took = duration{CPU: cpuTime(cmd.ProcessState), Clock: time.Since(begin)}
	}
	text, err := json.Marshal(measured)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.baselineFile(), text, 0o644); err != nil {
		return err
	}
	return r.writeProfile(profile)
}

func (r mutationRun) writeProfile(file string) error {
	module, err := r.module()
	if err != nil {
		return err
	}
	names, err := sourceFiles(r.original())
	if err != nil {
		return err
	}
	text := "mode: set\n"
	for _, name := range names {
		text += fmt.Sprintf("%s:1.1,1000000.1 1 1\n", path.Join(module, r.Package, name))
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func (r mutationRun) module() (string, error) {
	cmd := exec.Command(r.Go, "list", "-m")
	cmd.Dir = r.Source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking for the module's name: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r mutationRun) testMutant() (code int, err error) {
	changed, err := r.changedFiles()
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp(r.temporary(), "mutant-")
	if err != nil {
		return 0, fmt.Errorf("making a folder for the mutant: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	overlay := filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return 0, err
	}
	program := filepath.Join(folder, "mutant.test")
	if out, err := r.compile(program, "-overlay="+overlay); err != nil {
		if failed := new(exec.ExitError); errors.As(err, &failed) && namesAny(out, changed) {
			return exitNotViable, nil
		}
		return 0, fmt.Errorf("compiling a mutant: %w\n%s", err, out)
	}
	return r.judgeMutant(program)
}

// namesAny reports whether the compiler reports an error in a changed file, by its path in the
// repository or its replacement's.
func namesAny(out []byte, changed map[string]string) bool {
	for original := range changed {
		if bytes.Contains(out, []byte(filepath.Base(original)+":")) {
			return true
		}
	}
	return false
}

// changedFiles maps the changed files' paths in the copy of the repository to their replacements.
func (r mutationRun) changedFiles() (map[string]string, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	names, err := sourceFiles(r.original())
	if err != nil {
		return nil, err
	}
	changed := map[string]string{}
	for _, name := range names {
		was, err := os.ReadFile(filepath.Join(r.original(), name))
		if err != nil {
			return nil, err
		}
		is, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(was, is) {
			changed[filepath.Join(r.Source, r.Package, name)] = filepath.Join(here, name)
		}
	}
	return changed, nil
}

// Debug information and vet's checks take time and kill no mutant. Garbage collection took a third of the time of
// these processes, which end within a second.
func (r mutationRun) compile(program string, args ...string) ([]byte, error) {
	args = append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program}, args...)
	cmd := exec.Command(r.Go, append(args, "./"+r.Package)...)
	cmd.Dir = r.Source
	cmd.Env = append(os.Environ(), "GOGC=off", "GOMEMLIMIT=1GiB")
	return cmd.CombinedOutput()
}

func (r mutationRun) tests(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, slices.Concat([]string{"-test.failfast"}, r.Flags, args)...)
	cmd.Dir = filepath.Join(r.Source, r.Package)
	return cmd
}

// judgeMutant runs the tests, in a slow package those of -short first.
func (r mutationRun) judgeMutant(program string) (int, error) {
	text, err := os.ReadFile(r.baselineFile())
	if err != nil {
		return 0, err
	}
	var usual baseline
	if err := json.Unmarshal(text, &usual); err != nil {
		return 0, err
	}
	if usual.All.CPU > quick && usual.Short.CPU < usual.All.CPU/2 {
		if code, err := r.runMutant(program, usual.Short, "-test.short"); err != nil || code != exitLived {
			return code, err
		}
	}
	return r.runMutant(program, usual.All)
}

func (r mutationRun) runMutant(program string, usual duration, args ...string) (int, error) {
	cpu := cpuFactor*usual.CPU + r.More.CPU
	clock := clockFactor*usual.Clock + r.More.Clock
	cmd := r.tests(program, append(args, "-test.timeout="+clock.String())...)
	begin := time.Now()
	if err := startLimited(cmd, cpu); err != nil {
		return 0, err
	}
	err := cmd.Wait()
	if err == nil {
		return exitLived, nil
	}
	if failed := new(exec.ExitError); !errors.As(err, &failed) {
		return 0, fmt.Errorf("running the tests of a mutant: %w", err)
	}
	if cpuTime(cmd.ProcessState) >= cpu-time.Second || time.Since(begin) >= clock {
		if err := note(r.hungFile(), strings.Join(args, " ")); err != nil {
			return 0, err
		}
	}
	return exitKilled, nil
}

// The CPU limit is a hard one, because Go programs ignore the signal at the soft one.
func startLimited(cmd *exec.Cmd, cpu time.Duration) error {
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the tests of a mutant: %w", err)
	}
	// A limit below a second would be 0 and kill every mutant.
	seconds := uint64(max(1, cpu.Seconds()))
	for resource, most := range map[int]unix.Rlimit{
		unix.RLIMIT_CPU: {Cur: seconds, Max: seconds}, unix.RLIMIT_DATA: {Cur: memoryLimit, Max: memoryLimit},
	} {
		err := unix.Prlimit(cmd.Process.Pid, resource, &most, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended already
			return errors.Join(fmt.Errorf("limiting the tests of a mutant: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
	}
	return nil
}

func cpuTime(state *os.ProcessState) time.Duration { return state.UserTime() + state.SystemTime() }
