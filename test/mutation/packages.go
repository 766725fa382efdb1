package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The linter's rule of this name in .golangci.yml, which bans clients, is the only list of rule
// packages.
const (
	lintConfiguration = ".golangci.yml"
	lintRule          = "rules"
)

// rulePackages returns folders, relative to the repository: those that end with a requested name, and all if none is
// requested.
func rulePackages(ctx context.Context, root string, asked []string) ([]string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the repository: %w", err)
	}
	patterns, err := rulePatterns(filepath.Join(root, lintConfiguration))
	if err != nil {
		return nil, err
	}
	folders, err := foldersOf(root, patterns)
	if err != nil {
		return nil, err
	}
	// Programs are not rules: they generate files of rule packages.
	args := []string{"list", "-f", "{{.Name}} {{.Dir}}"}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the rule packages: %w", err)
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool {
		return strings.Contains(string(out), "main "+filepath.Join(root, folder)+"\n")
	})
	if len(asked) == 0 {
		return folders, nil
	}
	var unknown []error
	for _, name := range asked {
		if !slices.ContainsFunc(folders, func(folder string) bool { return isNamed(folder, name) }) {
			unknown = append(unknown, fmt.Errorf("%q is no rule package; these are: %s", name, strings.Join(folders, ", ")))
		}
	}
	return slices.DeleteFunc(slices.Clone(folders), func(folder string) bool {
		return !slices.ContainsFunc(asked, func(name string) bool { return isNamed(folder, name) })
	}), errors.Join(unknown...)
}

// Excluding patterns don't count.
func rulePatterns(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the list of rule packages: %w", err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `json:"files"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("reading the list of rule packages from %s: %w", file, err)
	}
	patterns := slices.DeleteFunc(config.Linters.Settings.Depguard.Rules[lintRule].Files, func(pattern string) bool {
		return strings.HasPrefix(pattern, "!")
	})
	if len(patterns) == 0 {
		return nil, fmt.Errorf("%s has no files in the rule %q of depguard: rule packages must be named there", file, lintRule)
	}
	return patterns, nil
}

// A pattern begins with `**/` and ends with `/**.go`: a folder and all below it.
func foldersOf(root string, patterns []string) ([]string, error) {
	var folders []string
	for _, pattern := range patterns {
		top, ok := strings.CutPrefix(pattern, "**/")
		top, isTree := strings.CutSuffix(top, "/**.go")
		if !ok || !isTree || strings.Contains(top, "*") {
			return nil, fmt.Errorf("%s: the pattern %q of the rule %q is not like **/folder/**.go", lintConfiguration, pattern, lintRule)
		}
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return filepath.SkipDir
			case isSource(file):
				folder, err := filepath.Rel(root, filepath.Dir(file))
				folders = append(folders, filepath.ToSlash(folder))
				return err
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("looking for the packages of %q: %w", pattern, err)
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders), nil
}

func isSource(file string) bool {
	return strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go")
}

// isNamed reports whether a folder's path ends with a name, by whole elements.
func isNamed(folder, name string) bool {
	return strings.HasSuffix("/"+folder, "/"+path.Clean(name))
}
