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

// mutant is a change identified by the text of the source, which stays the same when lines move.
type mutant struct {
	// Func is the changed function or declaration.
	Func string `json:"func"`
	// Line is the original line, or the lines of the expression; Becomes is the mutated text. A
	// sequence of blanks and line ends counts as one blank.
	Line    string `json:"line"`
	Becomes string `json:"becomes"`

	position string
}

// replacements maps operators to gremlins' replacements. A mutator without an entry changes an
// operation with assignment to a plain assignment.
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

// longestExpression is the maximum number of lines shown of an expression; of a longer one only the
// operator's line is shown.
const longestExpression = 5

type edit struct {
	from, to int
	text     string
}

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

// binaryAt returns the expression with the operator at a position and its enclosing expressions,
// outermost last; nil if there is no operator.
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

// gremlins changes the tree, not the text: parentheses keep the tree.
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

func precedenceOf(operator string) int {
	for t := token.ADD; t <= token.GEQ; t++ {
		if t.String() == operator {
			return t.Precedence()
		}
	}
	return token.LowestPrec
}

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
		for _, spec := range d.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if ok && s.set.Position(value.Pos()).Line <= line && line <= s.set.Position(value.End()).Line {
				return value.Names[0].Name
			}
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
