package repository

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const concerns = "/internal/handler/concern/"

// TestConcernsActOnlyInAct holds each concern of a running guest to the form that package concern describes.
func TestConcernsActOnlyInAct(t *testing.T) {
	found := 0
	for dir, files := range parsedPackages(t) {
		if !strings.HasPrefix("/"+dir, concerns) || strings.HasSuffix(dir, "test") {
			continue
		}
		found++
		for _, fault := range concernFaults(withoutTests(files)) {
			t.Errorf("%s: %s", dir, fault)
		}
	}
	if found < 2 {
		t.Fatalf("only %d concerns found: the test looks in the wrong place", found)
	}
}

func withoutTests(files []source) (list []*ast.File) {
	for _, file := range files {
		if !file.test {
			list = append(list, file.File)
		}
	}
	return list
}

func parsed(t *testing.T, path, text string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// concernFaults returns how a concern breaks its form: it imports another concern or keeps QEMU's monitor, Decide can
// read or change the concern's state, or Observe or Decide reach something with an effect.
func concernFaults(files []*ast.File) []string {
	faults := keptFaults(files)
	functions := functionsByName(files)
	for _, name := range []string{"Observe", "Decide", "Report", "Act"} {
		if len(functions[name]) != 1 {
			faults = append(faults, fmt.Sprintf("it has %d functions %s, want 1", len(functions[name]), name))
		}
	}
	faults = append(faults, receiverFaults(functions)...)
	return append(faults, effectFaults(functions)...)
}

func receiverFaults(functions map[string][]*ast.FuncDecl) (faults []string) {
	for _, f := range functions["Decide"] {
		if f.Recv == nil || len(f.Recv.List[0].Names) > 0 {
			faults = append(faults, "Decide names its receiver: it decides on its arguments only")
		}
	}
	return faults
}

func keptFaults(files []*ast.File) (faults []string) {
	for _, file := range files {
		for _, spec := range file.Imports {
			if path := strings.Trim(spec.Path.Value, `"`); strings.Contains(path, concerns) {
				faults = append(faults, fmt.Sprintf("it imports %s: concerns do not import each other", path))
			}
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE && mentions(d, "Monitor", "Client") {
				faults = append(faults, "a type has QEMU's monitor: only Act gets it")
			}
		}
	}
	return faults
}

func functionsByName(files []*ast.File) map[string][]*ast.FuncDecl {
	functions := map[string][]*ast.FuncDecl{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				functions[f.Name.Name] = append(functions[f.Name.Name], f)
			}
		}
	}
	return functions
}

func effectFaults(functions map[string][]*ast.FuncDecl) (faults []string) {
	for _, name := range reached(functions, "Observe", "Decide") {
		for _, f := range functions[name] {
			switch {
			case mentions(f, "Monitor", "Client"):
				faults = append(faults, fmt.Sprintf("Observe or Decide reach %s, which has QEMU's monitor", name))
			case mentions(f, "env"):
				faults = append(faults, fmt.Sprintf("Observe or Decide reach %s, which uses env: effects are for Act", name))
			}
		}
	}
	for _, name := range reached(functions, "Decide") {
		for _, f := range functions[name] {
			if mentions(f, "Context", "Query", "Lock") || contains(f, readsClock) {
				faults = append(faults, fmt.Sprintf("Decide reaches %s, which is not pure", name))
			}
		}
	}
	return faults
}

func readsClock(n ast.Node) bool { return named(n, "time", "Now") }

// reached returns the names of the package's functions and methods that those of the given names mention, directly or
// not. Names stand for all functions and methods of that name.
func reached(functions map[string][]*ast.FuncDecl, from ...string) []string {
	found := slices.Clone(from)
	for i := 0; i < len(found); i++ {
		for _, f := range functions[found[i]] {
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && functions[id.Name] != nil && !slices.Contains(found, id.Name) {
					found = append(found, id.Name)
				}
				return true
			})
		}
	}
	return found
}

// TestConcernsThatActElsewhereAreFound breaks the form of a concern in one way after the other.
func TestConcernsThatActElsewhereAreFound(t *testing.T) {
	const sound = `package sound
import "context"
type Seen struct{}
type Plan struct{}
type Concern struct{ env Env }
func (c *Concern) Observe(ctx context.Context, q Query) Seen { return c.ask(ctx, q) }
func (c *Concern) ask(ctx context.Context, q Query) Seen { return Seen{} }
func (*Concern) Decide(seen Seen) Plan { return plan(seen) }
func plan(Seen) Plan { return Plan{} }
func (*Concern) Report(Plan) {}
func (c *Concern) Act(ctx context.Context, m Monitor, p Plan) { c.env.Warn() }
`
	if faults := concernFaults([]*ast.File{parsed(t, "sound.go", sound)}); len(faults) > 0 {
		t.Errorf("a sound concern: %v", faults)
	}
	for name, c := range map[string]struct{ old, replacement, want string }{
		"another is imported":            {`import "context"`, `import ("context"; _ "x/internal/handler/concern/memory")`, "concerns do not import each other"},
		"the monitor is kept":            {"struct{ env Env }", "struct{ m Monitor }", "a type has QEMU's monitor"},
		"Decide is missing":              {"(*Concern) Decide", "(*Concern) Decides", "0 functions Decide"},
		"Decide has a state":             {"(*Concern) Decide", "(c *Concern) Decide", "Decide names its receiver"},
		"Observe acts":                   {"return c.ask(ctx, q)", "c.Act(ctx, nil, Plan{}); return Seen{}", "reach Act, which has QEMU's monitor"},
		"Observe has an effect in a way": {"Seen { return Seen{} }", "Seen { c.env.Warn(); return Seen{} }", "reach ask, which uses env"},
		"Decide reads the clock":         {"return Plan{} }", "time.Now(); return Plan{} }", "Decide reaches plan, which is not pure"},
		"Decide waits":                   {"func plan(Seen)", "func plan(Seen, context.Context)", "Decide reaches plan, which is not pure"},
	} {
		text := strings.Replace(sound, c.old, c.replacement, 1)
		if faults := concernFaults([]*ast.File{parsed(t, "broken.go", text)}); !strings.Contains(strings.Join(faults, "\n"), c.want) {
			t.Errorf("%s: found %v, want %q", name, faults, c.want)
		}
	}
}
