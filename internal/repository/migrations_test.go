package repository

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// connections is the package with the two sides' connections and facts. Its effects are calls of these: of package
// migrationproxy, and of the functions that it keeps to end something.
const connections = "internal/handler/migration"

var sends = []string{
	"Publish", "PublishDisks", "PublishTransport", "Control", "Run", "Opening", "Discard", "Expect",
	"Shield", "Unshield", "Reject",
	"Go", "Wake", "cancel", "endDisks", "forget",
}

// TestMigrationsTellNothingBeforeTell holds both sides of a migration to the form that their package comments describe:
// Observe and Decide send the other side nothing, and command nothing.
func TestMigrationsTellNothingBeforeTell(t *testing.T) {
	packages := parsedPackages(t)
	senders := sendersOf(withoutTests(packages[connections]))
	for _, name := range []string{"Tell", "TellDisks", "TellPlugged", "Offer", "Agree", "EndDisks", "Forward", "Discard", "Close"} {
		if !slices.Contains(senders, name) {
			t.Errorf("%s: %s is not found to send anything: the test looks in the wrong place", connections, name)
		}
	}
	for _, name := range []string{"AddFacts", "Told", "RecordStopped", "RecordUnmarked", "Lost"} {
		if slices.Contains(senders, name) {
			t.Errorf("%s: %s sends something: Observe needs it", connections, name)
		}
	}
	for _, side := range []string{"outgoing", "incoming"} {
		for _, fault := range migrationFaults(withoutTests(packages[connections+"/"+side]), senders) {
			t.Errorf("%s/%s: %s", connections, side, fault)
		}
	}
}

// sendersOf returns the functions and methods of a package that have an effect on the other side, directly or not.
func sendersOf(files []*ast.File) (senders []string) {
	functions := functionsByName(files)
	for name := range functions {
		if slices.ContainsFunc(reached(functions, name), func(other string) bool {
			return slices.ContainsFunc(functions[other], func(f *ast.FuncDecl) bool { return calls(f, sends...) })
		}) {
			senders = append(senders, name)
		}
	}
	return senders
}

func calls(root ast.Node, names ...string) bool {
	return contains(root, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch called := call.Fun.(type) {
		case *ast.Ident:
			return slices.Contains(names, called.Name)
		case *ast.SelectorExpr:
			return slices.Contains(names, called.Sel.Name)
		}
		return false
	})
}

// migrationFaults returns how one side of a migration breaks its form: Observe or Decide reach something with an
// effect, or Decide can read or change the migration's state.
func migrationFaults(files []*ast.File, senders []string) (faults []string) {
	functions := functionsByName(files)
	for _, name := range []string{"Observe", "Decide", "Tell"} {
		if len(functions[name]) != 1 {
			faults = append(faults, fmt.Sprintf("it has %d functions %s, want 1", len(functions[name]), name))
		}
	}
	faults = append(faults, receiverFaults(functions)...)
	faults = append(faults, effectFaults(functions)...)
	for _, name := range reached(functions, "Observe", "Decide") {
		for _, f := range functions[name] {
			switch {
			case calls(f, senders...):
				faults = append(faults, fmt.Sprintf("Observe or Decide reach %s, which tells the other side: that is for Tell", name))
			case mentions(f, "Context"):
				faults = append(faults, fmt.Sprintf("Observe or Decide reach %s, which can command QEMU", name))
			}
		}
	}
	return faults
}

// TestMigrationsThatTellElsewhereAreFound breaks the form of one side in one way after the other.
func TestMigrationsThatTellElsewhereAreFound(t *testing.T) {
	const kept = `package migration
type Source struct{ mine Facts }
func (s *Source) Told() Told { return s.told }
func (s *Source) RecordStopped(still bool) { s.still = still }
func (s *Source) Tell(fact Fact) { publish(&s.mine, fact) }
func publish(mine *Facts, fact Fact) { mine.Publish(fact) }
`
	const sound = `package sound
import "context"
type Migration struct{ source *Source; env Env }
func (m *Migration) Observe(in Facts) Seen { return m.ask(in) }
func (m *Migration) ask(in Facts) Seen { m.source.RecordStopped(in.still); return Seen{m.source.Told()} }
func (*Migration) Decide(seen Seen) Decision { return plan(seen) }
func plan(seen Seen) Decision { return Decision{} }
func (m *Migration) Tell(d Decision) { m.source.Tell(d.fact) }
func (m *Migration) Act(ctx context.Context, d Decision) { m.env.Log(d) }
`
	senders := sendersOf([]*ast.File{parsed(t, "kept.go", kept)})
	slices.Sort(senders)
	if want := []string{"Tell", "publish"}; !slices.Equal(senders, want) {
		t.Fatalf("the functions %v send something, want %v", senders, want)
	}
	if faults := migrationFaults([]*ast.File{parsed(t, "sound.go", sound)}, senders); len(faults) > 0 {
		t.Errorf("a sound migration: %v", faults)
	}
	for name, c := range map[string]struct{ old, replacement, want string }{
		"Tell is missing":            {") Tell(d", ") Say(d", "0 functions Tell"},
		"Decide has a state":         {"(*Migration) Decide", "(m *Migration) Decide", "Decide names its receiver"},
		"Decide tells":               {"return plan(seen)", "seen.source.Tell(0); return plan(seen)", "reach Decide, which tells the other side"},
		"Observe tells in a way":     {"m.source.RecordStopped(in.still);", "m.source.Tell(0);", "reach ask, which tells the other side"},
		"Observe commands QEMU":      {"ask(in Facts)", "ask(ctx context.Context, in Facts)", "reach ask, which can command QEMU"},
		"Observe acts":               {"return m.ask(in)", "m.Act(nil, Decision{}); return m.ask(in)", "reach Act, which uses env"},
		"Decide reads another clock": {"return Decision{} }", "time.Now(); return Decision{} }", "Decide reaches plan, which is not pure"},
	} {
		text := strings.Replace(sound, c.old, c.replacement, 1)
		if faults := migrationFaults([]*ast.File{parsed(t, "broken.go", text)}, senders); !strings.Contains(strings.Join(faults, "\n"), c.want) {
			t.Errorf("%s: found %v, want %q", name, faults, c.want)
		}
	}
}
