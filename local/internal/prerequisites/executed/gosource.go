// Package executed finds the programs that source code executes: in Go code by calls of os/exec and its wrappers,
// in shell scripts and make recipes by their commands. It serves the tests of the table of programs. It must
// execute nothing.
package executed

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// Call is a place where a program is executed.
type Call struct {
	Where string
	// Program is empty if it is only known at run time; then Expression is the code.
	Program    string
	Expression string
}

type goPackage struct {
	fset   *token.FileSet
	files  []*ast.File
	consts map[string]ast.Expr
	// wrappers maps functions that execute a parameter to the parameter's position. With shell the
	// parameter is a script.
	wrappers map[string]wrapper
	calls    []Call
}

type wrapper struct {
	parameter int
	shell     bool
}

// Go finds the programs that a package's files execute.
func Go(files []string) ([]Call, error) {
	p := &goPackage{fset: token.NewFileSet(), consts: map[string]ast.Expr{}, wrappers: map[string]wrapper{}}
	for _, file := range files {
		parsed, err := parser.ParseFile(p.fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("looking for what %s executes: %w", file, err)
		}
		p.files = append(p.files, parsed)
		// Constants in functions count, too.
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					p.consts[name.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	// Each round finds wrappers of the previous round's.
	for known := -1; known != len(p.wrappers); {
		known = len(p.wrappers)
		p.calls = nil
		for _, file := range p.files {
			p.visitFile(file)
		}
	}
	return p.calls, nil
}

func (p *goPackage) visitFile(file *ast.File) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		var parameters map[string]int
		if ok {
			parameters = positions(f.Type)
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if call, isCall := n.(*ast.CallExpr); isCall {
				p.visitCall(f, parameters, call)
			}
			return true
		})
	}
}

func positions(f *ast.FuncType) map[string]int {
	found := map[string]int{}
	i := 0
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			found[name.Name] = i
			i++
		}
		if len(field.Names) == 0 {
			i++
		}
	}
	return found
}

func (p *goPackage) visitCall(in *ast.FuncDecl, parameters map[string]int, call *ast.CallExpr) {
	at, ok := p.executes(call.Fun)
	if !ok || at.parameter >= len(call.Args) {
		return
	}
	argument := call.Args[at.parameter]
	if list, ok := argument.(*ast.CompositeLit); ok && len(list.Elts) > 0 {
		argument = list.Elts[0] // a command line begins with the program
	}
	if i, isParameter := parameterOf(argument, parameters); isParameter {
		p.wrappers[in.Name.Name] = wrapper{parameter: i, shell: at.shell}
		return
	}
	if at.shell {
		p.addScript(call, argument)
		return
	}
	name, ok := p.text(argument, 0)
	if !ok && (printed(argument) == "os.Args[0]" || isShipped(argument)) {
		return // itself, or the images' QEMU
	}
	if !ok {
		p.calls = append(p.calls, Call{Where: p.where(call), Expression: printed(argument)})
		return
	}
	p.calls = append(p.calls, Call{Where: p.where(call), Program: filepath.Base(name)})
	p.addShell(in, parameters, name, call, call.Args[at.parameter+1:])
}

func (p *goPackage) addShell(in *ast.FuncDecl, parameters map[string]int, shell string, call *ast.CallExpr, args []ast.Expr) {
	for i, arg := range args {
		option, _ := p.text(arg, 0)
		_, isShell := p.text(arg, 0)
		if base := filepath.Base(option); isShell && (base == "sh" || base == "bash") {
			shell = base
		}
		if base := filepath.Base(shell); option != "-c" || i+1 == len(args) || base != "sh" && base != "bash" {
			continue
		}
		if at, isParameter := parameterOf(args[i+1], parameters); isParameter {
			p.wrappers[in.Name.Name] = wrapper{parameter: at, shell: true}
			return
		}
		p.addScript(call, args[i+1])
	}
}

func (p *goPackage) addScript(call *ast.CallExpr, argument ast.Expr) {
	script, ok := p.template(argument)
	if !ok {
		p.calls = append(p.calls, Call{Where: p.where(call), Expression: printed(argument)})
		return
	}
	names, err := Shell(script)
	if err != nil {
		p.calls = append(p.calls, Call{Where: p.where(call), Expression: err.Error()})
	}
	for _, name := range names {
		if name == unknown {
			p.calls = append(p.calls, Call{Where: p.where(call), Expression: printed(argument)})
			continue
		}
		p.calls = append(p.calls, Call{Where: p.where(call), Program: name})
	}
}

// executes returns which argument of a function is executed, if any.
func (p *goPackage) executes(function ast.Expr) (wrapper, bool) {
	switch f := function.(type) {
	case *ast.SelectorExpr:
		switch f.Sel.Name {
		case "Command", "LookPath":
			return wrapper{}, isExec(f.X)
		case "CommandContext":
			return wrapper{parameter: 1}, isExec(f.X)
		}
		return wrapper{}, false
	case *ast.Ident:
		w, ok := p.wrappers[f.Name]
		return w, ok
	}
	return wrapper{}, false
}

// isExec reports whether an expression is the package os/exec or a similar value, such as
// Kubernetes' exec.Interface.
func isExec(x ast.Expr) bool {
	text := strings.ToLower(printed(x))
	return strings.HasSuffix(text, "exec") || strings.HasSuffix(text, "executor") || strings.HasSuffix(text, "execer")
}

// isShipped reports whether an expression is a path in the images' QEMU, which the machine does not have.
func isShipped(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	return ok && printed(call.Fun) == "shipped.Program"
}

// parameterOf returns which parameter an expression is, or is the first element of.
func parameterOf(x ast.Expr, parameters map[string]int) (int, bool) {
	if index, ok := x.(*ast.IndexExpr); ok {
		if first, ok := index.Index.(*ast.BasicLit); !ok || first.Value != "0" {
			return 0, false
		}
		x = index.X
	}
	name, ok := x.(*ast.Ident)
	if !ok {
		return 0, false
	}
	i, ok := parameters[name.Name]
	return i, ok
}

// text evaluates a constant string.
func (p *goPackage) text(x ast.Expr, depth int) (string, bool) {
	switch e := x.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, e.Kind == token.STRING && err == nil
	case *ast.Ident:
		if value, ok := p.consts[e.Name]; ok && depth < 5 {
			return p.text(value, depth+1)
		}
	}
	return "", false
}

// unknown replaces the parts of a script that are only known at run time.
const unknown = "unknown"

func (p *goPackage) template(x ast.Expr) (string, bool) {
	switch e := x.(type) {
	case *ast.BinaryExpr:
		left, ok := p.template(e.X)
		right, also := p.template(e.Y)
		if !ok {
			left = unknown
		}
		if !also {
			right = unknown
		}
		return left + right, ok || also
	case *ast.CallExpr:
		if printed(e.Fun) == "fmt.Sprintf" && len(e.Args) > 0 {
			return p.template(e.Args[0])
		}
	case *ast.ParenExpr:
		return p.template(e.X)
	}
	return p.text(x, 0)
}

func (p *goPackage) where(n ast.Node) string {
	position := p.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
}

func printed(x ast.Expr) string {
	switch e := x.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return printed(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return printed(e.X) + "[" + printed(e.Index) + "]"
	case *ast.BasicLit:
		return e.Value
	case *ast.CallExpr:
		var args []string
		for _, arg := range e.Args {
			args = append(args, printed(arg))
		}
		return printed(e.Fun) + "(" + strings.Join(args, ", ") + ")"
	case *ast.StarExpr:
		return "*" + printed(e.X)
	case *ast.BinaryExpr:
		return printed(e.X) + " " + e.Op.String() + " " + printed(e.Y)
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", x), "*ast."))
}
