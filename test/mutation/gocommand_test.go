package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test program act as gremlins' command go, like the program itself, because that command limits its
// own resources.
func TestMain(m *testing.M) {
	if file := os.Getenv(runVariable); file != "" {
		os.Exit(goCommand(file, os.Args[1:]))
	}
	os.Exit(m.Run())
}

const (
	ruleSource = `package rule

const most = 2 + 1

// Allowed has a rule in a case, which Go's coverage does not know.
func Allowed(n int) string {
	switch {
	case n > most:
		return "too" + " many"
	}
	for i := 0; i < n; i++ {
		n--
	}
	return ""
}
`
	ruleTest = `package rule

import "testing"

func TestFourAreTooMany(t *testing.T) {
	if got := Allowed(4); got != "too many" {
		t.Errorf("four: %q", got)
	}
	if got := Allowed(2); got != "" {
		t.Errorf("two: %q", got)
	}
}

func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	if got := Allowed(3); got != "" {
		t.Errorf("three: %q", got)
	}
}
`
)

func newRun(t *testing.T, source string) mutationRun {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "rule/rule.go": source, "rule/rule_test.go": ruleTest} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run, err := prepareRun(root, filepath.Join(t.TempDir(), "scratch"), "rule")
	if err != nil {
		t.Fatal(err)
	}
	run.More.CPU = 2 * time.Second
	if err := run.write(); err != nil {
		t.Fatal(err)
	}
	return run
}

func call(t *testing.T, run mutationRun, folder string, args ...string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), runVariable+"="+run.file())
	out, err := cmd.CombinedOutput()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, out)
	}
	return cmd.ProcessState.ExitCode()
}

func TestWhatBecomesOfAMutant(t *testing.T) {
	run := newRun(t, ruleSource)
	profile := filepath.Join(run.Scratch, "coverage")
	if code := call(t, run, run.Source, "test", "-cover", "-coverprofile", profile, "./rule/..."); code != exitLived {
		t.Fatalf("measuring ended with %d: %s", code, run.trouble())
	}
	text, err := os.ReadFile(profile)
	if want := "mode: set\nexample.com/m/rule/rule.go:1.1,1000000.1 1 1\n"; err != nil || string(text) != want {
		t.Errorf("the profile is %q (%v), want all lines: %q", text, err, want)
	}
	tests := map[string]struct {
		from, to string
		code     int
		hung     int
	}{
		"a condition of a case":                         {"n > most", "n <= most", exitKilled, 0},
		"a declaration":                                 {"2 + 1", "2 - 1", exitKilled, 0},
		"only what -short leaves out sees it":           {"n > most", "n >= most", exitKilled, 0},
		"no test sees it":                               {"i < n", "i <= n", exitLived, 0},
		"it does not compile":                           {`"too" + " many"`, `"too" - " many"`, exitNotViable, 0},
		"it never ends, and the limit on CPU time does": {"n--", "n++", exitKilled, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			hung := run.hung()
			folder := t.TempDir()
			changed := strings.Replace(ruleSource, test.from, test.to, 1)
			if changed == ruleSource {
				t.Fatalf("%q is not in the source", test.from)
			}
			if err := os.WriteFile(filepath.Join(folder, "rule.go"), []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			code := call(t, run, folder, "test", "-timeout", "1h", "-failfast", "example.com/m/rule")
			if code != test.code || run.hung()-hung != test.hung {
				t.Errorf("ended with %d, %d hung; want %d, %d (%s)", code, run.hung()-hung, test.code, test.hung, run.trouble())
			}
		})
	}
	if run.trouble() != "" {
		t.Errorf("noted as trouble: %s", run.trouble())
	}
}

func TestAMutantThatWaitsEndsByTheClock(t *testing.T) {
	const waits = "package rule\n\nimport \"time\"\n\nfunc Allowed(n int) string { time.Sleep(time.Duration(n) / 4 * time.Hour * 0); if n == 4 { return \"too many\" }; return \"\" }\n"
	run := newRun(t, waits)
	run.More = duration{CPU: time.Minute, Clock: time.Second}
	if err := run.write(); err != nil {
		t.Fatal(err)
	}
	if code := call(t, run, run.Source, "test", "-coverprofile", filepath.Join(run.Scratch, "c")); code != exitLived {
		t.Fatalf("measuring ended with %d: %s", code, run.trouble())
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "rule.go"), []byte(strings.Replace(waits, "* 0", "/ 1", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := call(t, run, folder, "test", "example.com/m/rule"); code != exitKilled || run.hung() != 1 {
		t.Errorf("ended with %d, %d hung; want it killed as one that hung (%s)", code, run.hung(), run.trouble())
	}
}

func TestTroubleIsNotTakenForAResult(t *testing.T) {
	t.Run("tests that fail without a mutant", func(t *testing.T) {
		run := newRun(t, strings.Replace(ruleSource, "2 + 1", "2 - 1", 1))
		call(t, run, run.Source, "test", "-coverprofile", filepath.Join(run.Scratch, "c"))
		if !strings.Contains(run.trouble(), "the tests of rule fail without a mutant") {
			t.Errorf("noted: %q", run.trouble())
		}
	})
	t.Run("another file than the mutant's does not compile", func(t *testing.T) {
		run := newRun(t, ruleSource)
		if err := os.WriteFile(filepath.Join(run.Source, "rule", "other_test.go"), []byte("package rule\n\nvar x int = \"\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "rule.go"), []byte(ruleSource+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		call(t, run, folder, "test", "example.com/m/rule")
		if !strings.Contains(run.trouble(), "compiling a mutant") {
			t.Errorf("noted: %q", run.trouble())
		}
	})
	t.Run("a call of the Go tool that is not known", func(t *testing.T) {
		run := newRun(t, ruleSource)
		call(t, run, run.Source, "vet", "./...")
		if !strings.Contains(run.trouble(), "unknown arguments: vet ./...") {
			t.Errorf("noted: %q", run.trouble())
		}
	})
}

func TestModulesAreNotFetchedAgain(t *testing.T) {
	run := newRun(t, ruleSource)
	if code := call(t, run, run.Source, "mod", "download"); code != exitLived || run.trouble() != "" {
		t.Errorf("ended with %d: %s", code, run.trouble())
	}
}

func TestOnlyTestsOfPropertiesGetTheirFlags(t *testing.T) {
	for imported, want := range map[string]int{"testing": 0, "pgregory.net/rapid": 3} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "x_test.go"), []byte("package x\n\nimport _ \""+imported+"\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := testFlags(folder); err != nil || len(got) != want {
			t.Errorf("tests that import %s get %q (%v), want %d flags", imported, got, err, want)
		}
	}
}
