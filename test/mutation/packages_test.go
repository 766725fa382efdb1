package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestThePackagesAreThoseOfTheLintersRule(t *testing.T) {
	all, err := rulePackages(t.Context(), "../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"internal/rules/vmi/vmihandler", "internal/rules/storage/placement", "internal/rules/hotplug/invariant"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is missing in %v", want, all)
		}
	}
	for _, not := range []string{"internal/rules/object/supported/main", "internal/controller/vmi"} {
		if slices.Contains(all, not) {
			t.Errorf("%s is no package of rules", not)
		}
	}
	some, err := rulePackages(t.Context(), "../..", []string{"hotplug", "rules/object/backoff"})
	if want := []string{"internal/rules/hotplug", "internal/rules/object/backoff"}; err != nil || !slices.Equal(some, want) {
		t.Errorf("hotplug and rules/object/backoff are %v (%v), want %v", some, err, want)
	}
	if _, err := rulePackages(t.Context(), "../..", []string{"nosuch"}); err == nil || !strings.Contains(err.Error(), `"nosuch" is no rule package`) {
		t.Errorf("a name that is unknown: %v", err)
	}
}

func TestAListThatIsNotUnderstoodIsAnError(t *testing.T) {
	const list = "linters: {settings: {depguard: {rules: {rules: {files: [%s]}}}}}\n"
	for name, files := range map[string]string{
		"no files":                   `"!$test"`,
		"single files":               `"**/internal/rules/*.go"`,
		"folders with wildcards":     `"**/internal/*/rules/**.go"`,
		"a folder that is not there": `"**/internal/none/**.go"`,
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, lintConfiguration), []byte(strings.Replace(list, "%s", files, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := rulePackages(t.Context(), root, nil); err == nil {
			t.Errorf("%s: no error but %v", name, got)
		}
	}
}
