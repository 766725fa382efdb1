package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhichStepsStartNow(t *testing.T) {
	steps := []step{
		{name: "fetch"},
		{name: "compile A", compiles: true, needs: []string{"fetch"}},
		{name: "compile B", compiles: true, needs: []string{"fetch"}},
		{name: "images", needs: []string{"fetch", "compile A"}},
	}
	for given, test := range map[string]struct {
		states map[string]state
		want   []string
	}{
		"nothing has begun: what needs nothing":                {nil, []string{"fetch"}},
		"what others need is under way: nothing":               {map[string]state{"fetch": running}, nil},
		"two could compile: the first of them":                 {map[string]state{"fetch": done}, []string{"compile A"}},
		"one compiles: no other":                               {map[string]state{"fetch": done, "compile A": running}, nil},
		"one has compiled: the other, and what needed it":      {map[string]state{"fetch": done, "compile A": done}, []string{"compile B", "images"}},
		"the second compiles: what does not compile may start": {map[string]state{"fetch": done, "compile A": done, "compile B": running}, []string{"images"}},
		"all is done: nothing":                                 {map[string]state{"fetch": done, "compile A": done, "compile B": done, "images": done}, nil},
	} {
		t.Run(given, func(t *testing.T) {
			var got []string
			for _, s := range next(steps, test.states) {
				got = append(got, s.name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("started %q, want %q", got, test.want)
			}
		})
	}
}

func TestStepsThatWouldNeverBeDoneAreRefused(t *testing.T) {
	for want, steps := range map[string][]step{
		"2 steps need what no step does, or each other": {{name: "a", needs: []string{"b"}}, {name: "b", needs: []string{"a"}}},
		"1 steps need what no step does, or each other": {{name: "a"}, {name: "b", needs: []string{"c"}}},
		`there are two steps "a"`:                       {{name: "a"}, {name: "a"}},
	} {
		if err := check(steps); err == nil || err.Error() != want {
			t.Errorf("got the error %v, want %s", err, want)
		}
	}
}

func TestTheStepsOfABuildCanAllBeDone(t *testing.T) {
	for goal, want := range map[goal][2]bool{programs: {true, false}, all: {true, true}, linter: {false, false}} {
		steps := steps(options{root: "/source", version: "v0.1.0", kubernetes: "v1.36.3", goal: goal})
		if err := check(steps); err != nil {
			t.Errorf("%s: %v", goal, err)
		}
		made := func(what string) bool {
			return slices.ContainsFunc(steps, func(s step) bool { return strings.Contains(s.name, what) })
		}
		if got := [2]bool{made("compile Kubernetes v1.36.3"), made("container images")}; got != want {
			t.Errorf("%s: makes programs and images: %t, want %t", goal, got, want)
		}
	}
}

// TestTheFirstFailureStopsTheOthers: one step fails, another would run for ever, and a third waits for both. All must
// end.
func TestTheFirstFailureStopsTheOthers(t *testing.T) {
	var stopped, begun atomic.Bool
	waits := make(chan struct{})
	steps := []step{
		{name: "endless", do: func(ctx context.Context, _ io.Writer) (*os.ProcessState, error) {
			close(waits)
			<-ctx.Done()
			stopped.Store(true)
			return nil, ctx.Err()
		}},
		{name: "broken", do: func(_ context.Context, out io.Writer) (*os.ProcessState, error) {
			<-waits
			_, err := io.WriteString(out, "first line\nlast line\n")
			return nil, errors.Join(err, errors.New("no such file"))
		}},
		{name: "later", needs: []string{"broken"}, do: func(context.Context, io.Writer) (*os.ProcessState, error) {
			begun.Store(true)
			return nil, nil
		}},
	}
	var out bytes.Buffer
	err := runAll(t.Context(), steps, newProgress(&out))
	if err == nil || err.Error() != "step 2 of 3, broken: no such file" {
		t.Errorf("got the error %v", err)
	}
	if !stopped.Load() || begun.Load() {
		t.Errorf("the endless step was stopped: %t; the later one began: %t", stopped.Load(), begun.Load())
	}
	if !regexp.MustCompile(`failed after \d+:\d\d; it said:\nfirst line\nlast line\n$`).MatchString(out.String()) {
		t.Errorf("it shows:\n%s", out.String())
	}
}

// TestACommandEndsWithAllThatItStarted cancels a command whose child would run on.
func TestACommandEndsWithAllThatItStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := command(t.TempDir(), nil, []string{"sh", "-c", "sleep 1000 & echo begun; wait"})(ctx, writer)
		ended <- err
	}()
	if _, err := reader.Read(make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	// The writer closes when the last process that holds it is gone, including the child.
	if err := <-ended; err == nil || errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("got the error %v; its child goes on", err)
	}
}

func TestWhatTheProgressSays(t *testing.T) {
	var out bytes.Buffer
	clock := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	p := newProgress(&out)
	p.now = func() time.Time { return clock }
	steps := []step{{name: "fetch"}, {name: "compile"}}
	p.begin(steps)
	p.started(steps[0])
	p.started(steps[1])
	clock = clock.Add(75 * time.Second)
	p.done(result{step: steps[0], took: 75 * time.Second, cpu: 3 * time.Second})
	p.still()
	p.done(result{step: steps[1], took: 75 * time.Second, cpu: 100 * time.Second})
	p.end()
	want := `  1:15  step 1 of 2, fetch: done in 1:15, with 0:03 of CPU time
  1:15  step 2 of 2, compile: for 1:15 so far
  1:15  step 2 of 2, compile: done in 1:15, with 1:40 of CPU time
  1:15  all 2 steps done, with 1:43 of CPU time
`
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
}

func TestCompilersCollectSeldomWhereThereIsMemory(t *testing.T) {
	const gibibyte = 1024 * mebibyte
	for given, test := range map[string]struct {
		memory uint64
		cores  int
		want   []string
	}{
		"two cores and plenty: as much as the largest linker needs": {16 * gibibyte, 2, []string{"GOGC=800", "GOMEMLIMIT=2048MiB"}},
		"two cores and 6 GiB: half of it, divided":                  {6 * gibibyte, 2, []string{"GOGC=800", "GOMEMLIMIT=1536MiB"}},
		"many cores share half of the memory":                       {64 * gibibyte, 32, []string{"GOGC=800", "GOMEMLIMIT=1024MiB"}},
		"little memory: as Go does it by itself":                    {2 * gibibyte, 2, nil},
	} {
		t.Run(given, func(t *testing.T) {
			if got := collectorSettings(test.memory, test.cores); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheCommandLineIsUnderstood(t *testing.T) {
	o, err := parseOptions([]string{"-version", "v1", "-root", "/source", "all"})
	if want := (options{root: "/source", version: "v1", goal: all}); err != nil || o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	if _, err := parseOptions(nil); err == nil || err.Error() != `say what to make: programs, all or linter, not ""` {
		t.Errorf("without a word: %v", err)
	}
}

// apart lists, for each module, the modules that it needs in another version: containerd in the next minor one, without
// other users in its module; Multus in an older one, because it does not compile with ours.
var apart = map[string][]string{
	"../..":      nil,
	"..":         nil,
	"../runtime": {"k8s.io/cri-api", "k8s.io/cri-streaming", "k8s.io/streaming"},
	"../multus":  {"k8s.io/kubelet"},
}

// TestTheModulesAgreeOnVersions: a package that two modules use in different versions is compiled twice, with all its
// importers.
func TestTheModulesAgreeOnVersions(t *testing.T) {
	chosen := map[string]map[string][]string{}
	for folder, others := range apart {
		for module, version := range requirements(t, folder) {
			if slices.Contains(others, module) {
				continue
			}
			if chosen[module] == nil {
				chosen[module] = map[string][]string{}
			}
			chosen[module][version] = append(chosen[module][version], folder)
		}
	}
	for module, versions := range chosen {
		if len(versions) > 1 {
			t.Errorf("%s is asked for in different versions: %v", module, versions)
		}
	}
}

// requirements returns the versions that a go.mod selects.
func requirements(t *testing.T, folder string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(folder, "go.mod")).Output()
	if err != nil {
		t.Fatalf("reading the go.mod of %s: %v", folder, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
		Replace []struct {
			Old struct{ Path string }
			New struct{ Version string }
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	for _, r := range mod.Replace {
		if _, used := versions[r.Old.Path]; used {
			versions[r.Old.Path] = r.New.Version
		}
	}
	return versions
}
