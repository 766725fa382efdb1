package executed

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtins are bash's own commands.
var builtins = strings.Fields(`. : [ [[ alias bg break builtin cd command continue declare echo eval exec exit export
	false fg getopts hash help jobs kill let local mapfile printf pushd popd pwd read readarray readonly return set
	shift shopt source test time times trap true type ulimit umask unalias unset wait`)

// prefixes are programs that execute another program in their arguments.
var prefixes = []string{"exec", "command", "env", "timeout", "xargs", "sudo", "nice", "nohup", "setsid", "unshare", "builtin"}

// noProgram matches a prefix's arguments before the program: options, durations, variables.
var noProgram = regexp.MustCompile(`^(-|[0-9]|[A-Za-z_0-9]+=|$)`)

// Shell returns the programs that a script executes, sorted. It leaves out builtins, the script's
// functions, programs in variables, and relative paths, which are the repository's own.
func Shell(script string) ([]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("reading a script: %w", err)
	}
	own := map[string]bool{}
	var names []string
	syntax.Walk(file, func(n syntax.Node) bool {
		switch node := n.(type) {
		case *syntax.FuncDecl:
			own[node.Name.Value] = true
		case *syntax.CallExpr:
			names = append(names, commandNames(node.Args)...)
		}
		return true
	})
	names = slices.DeleteFunc(names, func(name string) bool { return own[name] })
	slices.Sort(names)
	return slices.Compact(names), nil
}

// commandNames returns the programs of a command: its first word, and after a prefix the next word
// that can be a program.
func commandNames(words []*syntax.Word) []string {
	var names []string
	for i, word := range words {
		name := word.Lit()
		if i > 0 && noProgram.MatchString(name) {
			continue
		}
		if strings.HasPrefix(name, "/") {
			name = filepath.Base(name)
		}
		if name != "" && !strings.Contains(name, "/") && !slices.Contains(builtins, name) {
			names = append(names, name)
		}
		if !slices.Contains(prefixes, name) {
			break
		}
	}
	return names
}

var makeVariable = regexp.MustCompile(`\$[({][^)}]*[)}]|\$[@<^*?]`)

// Makefile returns the programs that recipes execute.
func Makefile(text string) ([]string, error) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	var script strings.Builder
	for line := range strings.Lines(text) {
		recipe, ok := strings.CutPrefix(line, "\t")
		if !ok {
			recipe = ""
			// `$(shell …)` in a variable is a command, too.
			if _, call, found := strings.Cut(line, "$(shell "); found {
				recipe, _, _ = strings.Cut(call, ")")
				recipe += "\n"
			}
		}
		recipe = strings.TrimLeft(recipe, "@-+")
		recipe = makeVariable.ReplaceAllString(recipe, "./"+unknown)
		script.WriteString(strings.ReplaceAll(recipe, "$$", "$"))
	}
	return Shell(script.String())
}
