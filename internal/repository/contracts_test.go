package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/layout"
)

// contractName matches names that one process writes and another one reads: labels, annotations, resources and API
// versions of the groups that Drydock serves, paths in its pods and on its nodes, and the prefixes of its pods' names.
var contractName = regexp.MustCompile(`^(/apis/)?([a-z.]+\.)?(kubevirt\.io|drydock\.dev)/[A-Za-z0-9./-]+$` +
	`|^/(var/run|var/lib|path|dev)/\S+$|^/usr/(bin|share)/(virt-|qemu-|OVMF/)\S+$` +
	`|^(hp-volume|virt-launcher|virt-provisioning)-$`)

// notOurs matches similar names of others: Linux' devices, and the import paths of Go packages.
var notOurs = regexp.MustCompile(`^/dev/(null|zero|console|full|pts|shm|loop.*|random|urandom|fd)$|^drydock\.dev/(drydock|local)/`)

// TestAContractNameHasOneHome fails when two packages spell a contract's name: it belongs to internal/contracts/layout,
// or to its only user. Among the modules that can't import layout, one package may spell it.
func TestAContractNameHasOneHome(t *testing.T) {
	spelled := contractNames(t)
	for _, known := range []string{layout.PrivateDir, layout.KVMLabel, layout.ResourceTUN, layout.AttachmentPrefix} {
		if !spelled[""][known]["internal/contracts/layout"] {
			t.Fatalf("%q is not found in internal/contracts/layout: the test looks in the wrong place", known)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(spelled)) {
		for _, name := range slices.Sorted(maps.Keys(spelled[module])) {
			if places := spelled[module][name]; len(places) > 1 {
				t.Errorf("%q is spelled in %s; use one constant, of internal/contracts/layout or of the API's own module",
					name, strings.Join(slices.Sorted(maps.Keys(places)), ", "))
			}
		}
	}
}

func contractNames(t *testing.T) map[string]map[string]map[string]bool {
	t.Helper()
	spelled := map[string]map[string]map[string]bool{}
	modules := moduleFolders(t)
	for dir, files := range parsedPackages(t) {
		module := moduleOf(dir, modules)
		if spelled[module] == nil {
			spelled[module] = map[string]map[string]bool{}
		}
		for name := range texts(files) {
			if !contractName.MatchString(name) || notOurs.MatchString(name) {
				continue
			}
			if spelled[module][name] == nil {
				spelled[module][name] = map[string]bool{}
			}
			spelled[module][name][dir] = true
		}
	}
	return spelled
}

func moduleFolders(t *testing.T) []string {
	t.Helper()
	var folders []string
	for _, pattern := range []string{"*/go.mod", "*/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			dir, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			folders = append(folders, dir)
		}
	}
	return folders
}

// moduleOf returns the folder of a package's module, "" for the root's.
func moduleOf(dir string, modules []string) string {
	of := ""
	for _, module := range modules {
		if (dir == module || strings.HasPrefix(dir, module+"/")) && len(module) > len(of) {
			of = module
		}
	}
	return of
}

// source is a file of a package.
type source struct {
	*ast.File
	test bool
}

// parsedPackages returns the files of every package of the repository, tests included, by folder.
func parsedPackages(t *testing.T) map[string][]source {
	t.Helper()
	packages := map[string][]source{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == "build" && filepath.Dir(path) == root || d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		packages[dir] = append(packages[dir], source{file, strings.HasSuffix(path, "_test.go")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// texts returns the strings in a package's code: its literals, and the constants that it joins of its own literals.
func texts(files []source) map[string]bool {
	constants := map[string]ast.Expr{}
	for _, file := range files {
		ast.Inspect(file.File, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					constants[name.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	out := map[string]bool{}
	for _, file := range files {
		ast.Inspect(file.File, func(n ast.Node) bool {
			if _, imports := n.(*ast.ImportSpec); imports {
				return false
			}
			if e, ok := n.(ast.Expr); ok {
				if text, ok := textOf(e, constants, 3); ok {
					out[text] = true
				}
			}
			return true
		})
	}
	return out
}

func textOf(e ast.Expr, constants map[string]ast.Expr, depth int) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := operand(e.X, constants, depth)
		right, too := operand(e.Y, constants, depth)
		return left + right, e.Op == token.ADD && ok && too
	}
	return "", false
}

func operand(e ast.Expr, constants map[string]ast.Expr, depth int) (string, bool) {
	if name, ok := e.(*ast.Ident); ok && depth > 0 && constants[name.Name] != nil {
		return operand(constants[name.Name], constants, depth-1)
	}
	return textOf(e, constants, depth)
}
