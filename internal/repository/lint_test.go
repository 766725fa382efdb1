package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type lintConfig struct {
	Linters struct {
		Enable   []string `json:"enable"`
		Settings struct {
			Depguard struct {
				Rules map[string]struct {
					Files []string `json:"files"`
				} `json:"rules"`
			} `json:"depguard"`
		} `json:"settings"`
	} `json:"linters"`
}

// TestEveryPackageHasRulesAboutItsImports checks that an import rule of .golangci.yml covers each package below
// internal and cmd, and that no rule names a folder that was moved: such a rule would silently forbid nothing.
func TestEveryPackageHasRulesAboutItsImports(t *testing.T) {
	files := goFiles(t)
	covered := map[string]bool{}
	for _, path := range files {
		if strings.HasPrefix(path, "/internal/") || strings.HasPrefix(path, "/cmd/") {
			covered[filepath.Dir(path)] = false
		}
	}
	for name, rule := range readLintConfig(t).Linters.Settings.Depguard.Rules {
		for _, pattern := range rule.Files {
			if strings.HasPrefix(pattern, "!") {
				continue
			}
			expression, matched := globExpression(pattern), false
			for _, path := range files {
				if expression.MatchString(path) {
					matched, covered[filepath.Dir(path)] = true, true
				}
			}
			if !matched {
				t.Errorf(".golangci.yml: the pattern %q of the rule %q matches no file", pattern, name)
			}
		}
	}
	for dir, is := range covered {
		if !is {
			t.Errorf("%s: no import rule of .golangci.yml covers it; add it to one, and to the table of packages in docs/architecture.md", dir)
		}
	}
}

// A disabled linter never reports that its exemption is not needed.
func TestExemptionsNameLintersThatRun(t *testing.T) {
	enabled := readLintConfig(t).Linters.Enable
	exemption := regexp.MustCompile(`//nolint:([a-z,]+)`)
	found := 0
	for _, path := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range exemption.FindAllStringSubmatch(string(text), -1) {
			found++
			for name := range strings.SplitSeq(match[1], ",") {
				if !slices.Contains(enabled, name) {
					t.Errorf("%s: %s names a linter that .golangci.yml does not enable", path, match[0])
				}
			}
		}
	}
	if found == 0 {
		t.Error("no exemption found in the whole repository: the test looks in the wrong place")
	}
}

func readLintConfig(t *testing.T) lintConfig {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config lintConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("reading .golangci.yml: %v", err)
	}
	if len(config.Linters.Enable) == 0 || len(config.Linters.Settings.Depguard.Rules) == 0 {
		t.Fatal(".golangci.yml enables no linter or has no import rules: the test reads it wrongly")
	}
	return config
}

var notSource = []string{"/bin", "/build", "/.git", "/web/node_modules"}

// goFiles returns the paths of all Go files, with a slash for the repository's root.
func goFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || slices.Contains(notSource, strings.TrimPrefix(path, root))) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walking the repository: %v", err)
	}
	return found
}

// In depguard's patterns, ** stands for anything, * for anything without a slash.
func globExpression(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(text, `\*\*`, `.*`)
	text = strings.ReplaceAll(text, `\*`, `[^/]*`)
	return regexp.MustCompile("^" + text + "$")
}
