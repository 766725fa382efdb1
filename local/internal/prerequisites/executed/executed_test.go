package executed

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatGoCodeExecutes(t *testing.T) {
	const source = `package p

import "os/exec"

const named = "named-by-a-constant"

func direct() {
	exec.Command("direct", "argument")
	exec.CommandContext(ctx, "/usr/bin/with-a-path")
	exec.LookPath(named)
	command := exec.Command
}

func (m *mounter) byInterface() { m.exec.Command("by-an-interface").CombinedOutput() }

func run(ctx context.Context, program string, args ...string) { exec.CommandContext(ctx, program, args...) }

func outer(how ...string) { run(ctx, how[0], how[1:]...) }

func line(words []string) { exec.Command(words[0], words[1:]...) }

func wrapped() {
	run(ctx, "wrapped", "x")
	outer("wrapped-twice", "x")
	line([]string{"in-a-list", "x"})
}

func sh(script string) { exec.Command("sh", "-c", script) }

func scripts() {
	sh(fmt.Sprintf("in-a-script %s | in-a-pipe", x))
	exec.Command("unshare", "--mount", "sh", "-c", "in-a-nested-script")
	exec.Command("/bin/sh", "-c", "after ; a "+x)
	exec.Command("/bin/sh", "-c", x+" y")
}

func dynamic() { exec.Command(os.Args[0]) }
`
	file := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := Go([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	var names, dynamic []string
	for _, call := range calls {
		if call.Program != "" {
			names = append(names, call.Program)
		} else {
			dynamic = append(dynamic, call.Expression)
		}
	}
	slices.Sort(names)
	want := []string{
		"a", "after", "by-an-interface", "direct", "in-a-nested-script", "in-a-list", "in-a-pipe", "in-a-script", "named-by-a-constant",
		"sh", "with-a-path", "wrapped", "wrapped-twice",
	}
	want = append(want, "sh", "sh", "unshare")
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the code executes %q,\nwant %q", names, want)
	}
	if want := []string{`x + " y"`}; !slices.Equal(dynamic, want) {
		t.Errorf("only known at run time are %q, want %q", dynamic, want)
	}
}

func TestWhatAScriptExecutes(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"a pipe, a list and a condition":     {"a x | b; if c; then d && e || f; fi", []string{"a", "b", "c", "d", "e", "f"}},
		"what builtins and functions do":     {"set -e; own() { inner; }; own; echo x; cd y", []string{"inner"}},
		"a substitution within a string":     {`echo "$(a "$(b)")" <(c)`, []string{"a", "b", "c"}},
		"variables and the repository's own": {`"$x" y; bin/z; ./w; A=b /usr/sbin/v`, []string{"v"}},
		"what another program executes":      {"timeout 20 a b; timeout 2 bin/x y; exec env X=1 c; command -v d", []string{"a", "c", "d", "env", "timeout"}},
		"a text for another program":         {"cat <<'END'\nnot-executed\nEND\n", []string{"cat"}},
		"a comment":                          {"# not-executed\na # nor this", []string{"a"}},
		"loops, cases and negations":         {"while read -r x; do a; done < <(b); case $x in y) c ;; esac; ! d", []string{"a", "b", "c", "d"}},
	} {
		got, err := Shell(test.script)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, test.want)
		}
	}
	if _, err := Shell("if a; then"); err == nil {
		t.Error("half a script is no error")
	}
}

func TestWhatRecipesExecute(t *testing.T) {
	const makefile = "V ?= $(shell a --b 2>/dev/null || c)\nGO_BUILD := go build\n\nall: x\n\t@d $@ || { e; }\n\t$(GO_BUILD) -o bin/\n\tcd f && \\\n\t  g $$h\n"
	got, err := Makefile(makefile)
	if want := []string{"a", "c", "d", "e", "g"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
