package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bundledPackage is a package of npm of which something is in the bundle.
type bundledPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
	text    string
}

// licenses may be in a release under the Apache license, with a notice.
var licenses = []string{"MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "MPL-2.0", "0BSD", "OFL-1.1", "Unlicense"}

const modules = "node_modules/"

// bundled returns the packages that have something in an output, sorted.
func bundled(web string, m metafile) ([]bundledPackage, error) {
	folders := map[string]bool{}
	for _, out := range m.Outputs {
		for name, part := range out.Inputs {
			if at := strings.LastIndex(name, modules); at >= 0 && part.Bytes > 0 {
				folders[name[:at]+modules+packageName(name[at+len(modules):])] = true
			}
		}
	}
	var packages []bundledPackage
	for folder := range folders {
		p, err := readPackage(filepath.Join(web, folder))
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b bundledPackage) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return slices.Compact(packages), nil
}

// packageName returns the first element of a path, the first two of a scoped package.
func packageName(path string) string {
	elements := strings.SplitN(path, "/", 3)
	if strings.HasPrefix(path, "@") && len(elements) > 1 {
		return elements[0] + "/" + elements[1]
	}
	return elements[0]
}

func readPackage(folder string) (bundledPackage, error) {
	var p bundledPackage
	text, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("reading the package in %s: %w", folder, err)
	}
	if !slices.Contains(licenses, p.License) {
		return p, fmt.Errorf("the license of the package %s is %q: only %s may be in the bundle", p.Name, p.License, strings.Join(licenses, ", "))
	}
	p.text, err = licenseText(folder)
	if err != nil {
		return p, fmt.Errorf("reading the license of the package %s: %w", p.Name, err)
	}
	return p, nil
}

var errNoLicense = errors.New("it has no file of its license")

// licenseText returns the texts of a package's files of licenses and notices.
func licenseText(folder string) (string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	var all []string
	for _, file := range files {
		name := strings.ToLower(file.Name())
		if !file.Type().IsRegular() || !strings.HasPrefix(name, "license") && !strings.HasPrefix(name, "license") && !strings.HasPrefix(name, "notice") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return "", err
		}
		all = append(all, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	if len(all) == 0 {
		return "", errNoLicense
	}
	return strings.Join(all, "\n\n"), nil
}

func noticesOf(packages []bundledPackage) []byte {
	var text strings.Builder
	text.WriteString("The pages of the web console contain parts of these packages.\n")
	for _, p := range packages {
		fmt.Fprintf(&text, "\n%s\n%s %s (%s)\n\n%s\n", strings.Repeat("=", 80), p.Name, p.Version, p.License, p.text)
	}
	return []byte(text.String())
}
