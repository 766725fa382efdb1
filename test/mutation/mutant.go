package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
)

// mutant is a change by the words of the source, which stay the same when lines move.
type mutant struct {
	// Func is the function or the declaration that is changed.
	Func string `json:"func"`
	// Line is the line as it is, or the lines of the expression; Becomes is what it would
	// be. Blanks and the ends of lines count as one blank.
	Line    string `json:"line"`
	Becomes string `json:"becomes"`

	position string
}

// replacements are what gremlins makes of operators. A mutator that is not named here
// turns an operation with assignment into a bare assignment.
var replacements = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_ASSIGNMENTS":    {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "%=": "%="},
	"INVERT_BITWISE":        {"&": "|", "|": "&", "^": "&", "&^": "&", "<<": ">>", ">>": "<<"},
	"INVERT_BWASSIGN":       {"&=": "|=", "|=": "&=", "^=": "&=", "&^=": "&=", "<<=": ">>=", ">>=": "<<="},
	"INVERT_LOGICAL":        {"&&": "||", "||": "&&"},
	"INVERT_LOOPCTRL":       {"break": "continue", "continue": "break"},
	"INVERT_NEGATIVES":      {"-": "+"},
	"REMOVE_SELF_ASSIGNMENTS": {"+=": "=", "-=": "=", "*=": "=", "/=": "=", "%=": "=",
		"&=": "=", "|=": "=", "^=": "=", "&^=": "=", "<<=": "=", ">>=": "="},
}

// sourceFile is a file as text and as declarations.
type sourceFile struct {
	text []byte
	set  *token.FileSet
	tree *ast.File
}

func parseSource(path string) (sourceFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return sourceFile{}, fmt.Errorf("reading a mutated file: %w", err)
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return sourceFile{}, fmt.Errorf("reading a mutated file: %w", err)
	}
	return sourceFile{text: text, set: set, tree: tree}, nil
}

// mutant returns the change that gremlins names by line and column.
func (s sourceFile) mutant(m gremlinsMutation) (mutant, error) {
	file := s.set.File(s.tree.FileStart)
	if m.Line < 1 || m.Line > file.LineCount() || m.Column < 1 {
		return mutant{}, fmt.Errorf("the file has no such place")
	}
	at := file.LineStart(m.Line) + token.Pos(m.Column-1)
	from := file.Offset(at)
	operator := ""
	for candidate := range replacements[m.Type] {
		if bytes.HasPrefix(s.text[from:], []byte(candidate)) && len(candidate) > len(operator) {
			operator = candidate
		}
	}
	if operator == "" {
		return mutant{}, fmt.Errorf("%s cannot be applied here", m.Type)
	}
	becomes := replacements[m.Type][operator]
	edits := []edit{{from, from + len(operator), becomes}}
	first, last := at, at
	if around := s.binaryAt(at); len(around) > 0 {
		edits = append(edits, s.parentheses(around, becomes)...)
		outermost := around[len(around)-1]
		if file.Line(outermost.End())-file.Line(outermost.Pos()) < longestExpression {
			first, last = outermost.Pos(), outermost.End()
		}
	}
	begin, end := file.Offset(file.LineStart(file.Line(first))), len(s.text)
	if next := file.Line(last) + 1; next <= file.LineCount() {
		end = file.Offset(file.LineStart(next))
	}
	return mutant{Func: s.declaration(m.Line), Line: oneLine(s.text[begin:end]), Becomes: oneLine(apply(s.text, edits, begin, end))}, nil
}

// longestExpression is how many lines are shown of an expression at most; of a longer one
// the line of the operator is shown.
const longestExpression = 5

// edit replaces a part of a text.
type edit struct {
	from, to int
	text     string
}

// apply returns the part of a text between begin and end with the edits in it.
func apply(text []byte, edits []edit, begin, end int) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	at := begin
	for _, e := range edits {
		if e.from < begin || e.to > end {
			continue
		}
		out = append(append(out, text[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, text[at:end]...)
}

func oneLine(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

// binaryAt returns the expression whose operator is at a place, and those around it, the
// outermost last; nil if the token there belongs to none.
func (s sourceFile) binaryAt(at token.Pos) []ast.Expr {
	var path []ast.Node
	var found []ast.Expr
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		if e, ok := n.(*ast.BinaryExpr); ok && e.OpPos == at {
			for i := len(path) - 1; i >= 0; i-- {
				switch around := path[i].(type) {
				case *ast.BinaryExpr:
					found = append(found, around)
				case *ast.ParenExpr:
					found = append(found, around)
				default:
					return true
				}
			}
		}
		return true
	})
	return found
}

// parentheses returns those that the changed expression needs to stay the same tree:
// gremlins changes the tree, not the text.
func (s sourceFile) parentheses(around []ast.Expr, operator string) []edit {
	precedence := precedenceOf(operator)
	changed := around[0].(*ast.BinaryExpr)
	var edits []edit
	wrap := func(e ast.Expr) {
		from, to := s.set.Position(e.Pos()).Offset, s.set.Position(e.End()).Offset
		edits = append(edits, edit{from, from, "("}, edit{to, to, ")"})
	}
	if x, ok := changed.X.(*ast.BinaryExpr); ok && x.Op.Precedence() < precedence {
		wrap(x)
	}
	if y, ok := changed.Y.(*ast.BinaryExpr); ok && y.Op.Precedence() <= precedence {
		wrap(y)
	}
	if len(around) > 1 {
		if outer, ok := around[1].(*ast.BinaryExpr); ok && precedence < outer.Op.Precedence() {
			wrap(changed)
		}
	}
	return edits
}

// precedenceOf returns how strongly an operator binds.
func precedenceOf(operator string) int {
	for t := token.ADD; t <= token.GEQ; t++ {
		if t.String() == operator {
			return t.Precedence()
		}
	}
	return token.LowestPrec
}

// declaration returns the name of the function or the declaration that a line is in.
func (s sourceFile) declaration(line int) string {
	at := slices.IndexFunc(s.tree.Decls, func(d ast.Decl) bool {
		return s.set.Position(d.Pos()).Line <= line && line <= s.set.Position(d.End()).Line
	})
	if at < 0 {
		return ""
	}
	switch d := s.tree.Decls[at].(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		return receiver(d.Recv.List[0].Type) + "." + d.Name.Name
	case *ast.GenDecl:
		return s.declared(d, line)
	}
	return ""
}

// declared returns the name that a line of a declaration is about.
func (s sourceFile) declared(d *ast.GenDecl, line int) string {
	for _, spec := range d.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if ok && s.set.Position(value.Pos()).Line <= line && line <= s.set.Position(value.End()).Line {
			return value.Names[0].Name
		}
	}
	return ""
}

func receiver(of ast.Expr) string {
	switch e := of.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
