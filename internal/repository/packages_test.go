// Package repository holds the tests of the repository itself: rules about the source that no linter can state.
// It owns no code that runs.
package repository

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestEveryPackageSaysWhatItIs checks that every package has exactly one doc comment, long enough to say what the
// package owns.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	docs := packageDocs(t)
	if len(docs) < 20 {
		t.Fatalf("only %d packages found under %s: the test looks in the wrong place", len(docs), root)
	}
	for dir, found := range docs {
		switch {
		case len(found) == 0:
			t.Errorf("%s: no file has a package comment; say what the package owns and what it must not do", dir)
		case len(found) > 1:
			t.Errorf("%s: %d files have a package comment; keep one", dir, len(found))
		case len(found[0]) < 60:
			t.Errorf("%s: the package comment %q says too little", dir, found[0])
		}
	}
}

// packageDocs maps every folder with Go code to its package comments. External
// test packages (name_test) belong to the package that they test.
func packageDocs(t *testing.T) map[string][]string {
	t.Helper()
	docs := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == "build" || d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if docs[dir] == nil {
			docs[dir] = []string{}
		}
		if text := strings.TrimSpace(file.Doc.Text()); text != "" && !isDirective(text) {
			docs[dir] = append(docs[dir], text)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walking the repository: %v", err)
	}
	return docs
}

// isDirective reports whether a comment is for tools and not for readers.
func isDirective(text string) bool { return strings.HasPrefix(text, "+k8s:") }
