package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTestsThatHoldTheBoundariesExist checks that every test that docs/security.md names exists.
func TestTheTestsThatHoldTheBoundariesExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Fatalf("the page names only %d tests", len(named))
	}
	for _, name := range named {
		if !tests[name[1]] {
			t.Errorf("docs/security.md names %s, which is no test of this repository", name[1])
		}
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		// A row without a test must say why there is none.
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "`Test") && !strings.Contains(line, "| none: ") &&
			!strings.Contains(line, "| test |") {
			t.Errorf("no test is named in the row %q", line)
		}
	}
}

// testNames returns all test functions of the repository, whatever their build tags.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == "build" || d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
