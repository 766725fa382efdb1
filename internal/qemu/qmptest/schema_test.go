package qmptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drydock.dev/drydock/test/shipped"
)

// members are the arguments that are not literals where a command is sent.
var members = map[string][]string{
	"announce-self":          {"initial", "max", "rounds", "step"},
	"blockdev-insert-medium": {"id", "node-name"},
	"migrate-set-parameters": {"downtime-limit", "max-bandwidth", "max-postcopy-bandwidth", "multifd-channels"},
	"netdev_add":             {"type", "id", "fds", "vhostfds", "vhost", "ifname", "script", "downscript", "queues"},
	"qom-set":                {"path", "property", "value"},
	"set_link":               {"name", "up"},
}

// capabilities of migrations that Drydock sets.
var capabilities = []string{
	"auto-converge", "events", "late-block-activate", "multifd", "pause-before-switchover", "postcopy-ram", "return-path",
}

// eachFile calls do with the source below folder, without that of the guest agent and of this package.
func eachFile(t *testing.T, folder string, do func(*ast.File)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "testdata" || name == "agent" || name == "qmptest" {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		do(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func executed(n ast.Node) (command string, arguments []string, ok bool) {
	call, is := n.(*ast.CallExpr)
	if !is || len(call.Args) < 3 {
		return "", nil, false
	}
	if f, is := call.Fun.(*ast.SelectorExpr); !is || !strings.HasPrefix(f.Sel.Name, "Execute") {
		return "", nil, false
	}
	if command, ok = text(call.Args[1]); !ok {
		return "", nil, false
	}
	return command, keys(call.Args[2]), true
}

// keys returns the keys of a literal map that are literals.
func keys(e ast.Expr) (list []string) {
	literal, _ := e.(*ast.CompositeLit)
	if literal == nil {
		return nil
	}
	for _, element := range literal.Elts {
		if pair, is := element.(*ast.KeyValueExpr); is {
			if name, known := text(pair.Key); known {
				list = append(list, name)
			}
		}
	}
	return list
}

func text(e ast.Expr) (string, bool) {
	literal, is := e.(*ast.BasicLit)
	if !is || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

func TestQEMUHasWhatDrydockSends(t *testing.T) {
	types := typesOf(t, shipped.Program(t, "qemu-system-x86_64"))
	_, commands := findMentions(t, "../..")
	if len(commands) < 40 {
		t.Fatalf("only %d commands are found in the source: %q", len(commands), slices.Sorted(maps.Keys(commands)))
	}
	for name, arguments := range commands {
		command, has := types[name]
		switch {
		case !has || command.Kind != "command":
			t.Errorf("QEMU has no command %s", name)
			continue
		case command.deprecated():
			t.Errorf("%s is deprecated", name)
		}
		for _, argument := range slices.Concat(arguments, members[name]) {
			// The arguments of device_add are those of the device.
			if name != "device_add" {
				types.check(t, name, command.ArgType, argument)
			}
		}
	}
	for name := range members {
		if _, sent := commands[name]; !sent {
			t.Errorf("nobody sends %s any more", name)
		}
	}
}

func TestQEMUHasTheCapabilitiesOfMigrations(t *testing.T) {
	theirs := Values(t, shipped.Program(t, "qemu-system-x86_64"), "query-migrate-capabilities", "capability")
	for _, name := range capabilities {
		if !slices.Contains(theirs, name) {
			t.Errorf("QEMU has no capability %s: %q", name, theirs)
		}
	}
}
