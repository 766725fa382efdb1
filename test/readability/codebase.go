package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

type codebase struct {
	lines        int // with code on them
	commentWords int
	what         int // among the comment words
	packages     map[string]*pkg
}

type pkg struct {
	lines     int
	functions map[string]int // declarations of unexported functions, by name
	named     map[string]int // includes tests
	methods   map[string]int // by type
	longest   int            // lines of the longest function
	longestOf string
}

type figure struct{ name, value, goal, where string }

// Tests count only for the use of names. Test data and generated files don't count.
func (c *codebase) read(tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (entry.Name() == "testdata" || entry.Name() == "build" || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return c.count(name, source)
	})
}

func (c *codebase) count(name string, source []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	if c.packages == nil {
		c.packages = map[string]*pkg{}
	}
	at := path.Dir(name)
	if c.packages[at] == nil {
		c.packages[at] = &pkg{functions: map[string]int{}, named: map[string]int{}, methods: map[string]int{}}
	}
	c.packages[at].countNames(file)
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	lines := linesOfCode(name, source)
	c.lines += lines
	c.packages[at].lines += lines
	c.countComments(file)
	c.packages[at].countDeclarations(files, file)
	return nil
}

// A line counts if a token other than a comment begins on it.
func linesOfCode(name string, source []byte) int {
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok != token.SEMICOLON || literal == ";" {
			lines[file.Line(pos)] = true
		}
	}
}

// word matches words that contain a letter. Directives have been removed.
var word = regexp.MustCompile(`[\pL][\pL\pN'’_-]*`)

func (c *codebase) countComments(file *ast.File) {
	for _, group := range file.Comments {
		for _, w := range word.FindAllString(group.Text(), -1) {
			c.commentWords++
			if strings.EqualFold(w, "what") {
				c.what++
			}
		}
	}
}

func (p *pkg) countDeclarations(files *token.FileSet, file *ast.File) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := files.Position(function.End()).Line - files.Position(function.Pos()).Line + 1; n > p.longest {
			p.longest, p.longestOf = n, function.Name.Name
		}
		if function.Recv != nil {
			p.methods[receiver(function)]++
		}
		if !function.Name.IsExported() && function.Name.Name != "main" && function.Name.Name != "init" {
			p.functions[function.Name.Name]++
		}
	}
}

func (p *pkg) countNames(file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok && !name.IsExported() {
			p.named[name.Name]++
		}
		return true
	})
}

func receiver(function *ast.FuncDecl) string {
	expr := function.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if index, ok := expr.(*ast.IndexExpr); ok {
		expr = index.X
	}
	if name, ok := expr.(*ast.Ident); ok {
		return name.Name
	}
	return "?"
}

func (c *codebase) figures() []figure {
	functions, once := 0, 0
	type place struct {
		n     int
		where string
	}
	var largest, biggest, longest place
	larger := func(a *place, n int, where string) {
		if n > a.n || n == a.n && where < a.where {
			*a = place{n, where}
		}
	}
	for at, p := range c.packages {
		larger(&biggest, p.lines, at)
		larger(&longest, p.longest, at+"."+p.longestOf)
		for name, n := range p.methods {
			larger(&largest, n, at+"."+name)
		}
		for name, declared := range p.functions {
			functions += declared
			if p.named[name] <= 2*declared {
				once += declared
			}
		}
	}
	return []figure{
		{"'what' per 1,000 words of comments", ratio(1000*c.what, c.commentWords), "3", ""},
		{"words of comments per line of code", ratio(c.commentWords, c.lines), "1.0", ""},
		{"unexported functions used once, per cent", ratio(100*once, functions), "25", ""},
		{"methods of one type", fmt.Sprint(largest.n), "25", largest.where},
		{"lines of code of one package", fmt.Sprint(biggest.n), "2500", biggest.where},
		{"lines of one function", fmt.Sprint(longest.n), "80", longest.where},
	}
}

func ratio(a, b int) string { return fmt.Sprintf("%.1f", float64(a)/float64(max(b, 1))) }
