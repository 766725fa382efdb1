package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const decisions = "docs/decisions"

// Each record must be in the index once, with the status below its title.
func TestEveryDecisionIsInTheIndexOnce(t *testing.T) {
	index := readText(t, decisions+"/README.md")
	rows := regexp.MustCompile(`(?m)^\| \[(\d{3})\]\(([^)]+)\) \| (.+?) \| (.+) \|$`).FindAllStringSubmatch(index, -1)
	listed := map[string]string{}
	for _, row := range rows {
		number, file, status := row[1], row[2], row[4]
		if !strings.HasPrefix(file, number+"-") {
			t.Errorf("the index links the record %s to %s", number, file)
		}
		if _, twice := listed[file]; twice {
			t.Errorf("the record %s is in the index twice", file)
		}
		listed[file] = status
	}
	numbers := map[string]string{}
	for _, file := range recordFiles(t) {
		number := file[:3]
		if other, used := numbers[number]; used {
			t.Errorf("the records %s and %s have the same number", other, file)
		}
		numbers[number] = file
		lines := strings.SplitN(readText(t, decisions+"/"+file), "\n", 4)
		if !strings.HasPrefix(lines[0], "# "+number) {
			t.Errorf("%s: the title is %q; want it to begin with %q", file, lines[0], "# "+number)
		}
		status := regexp.MustCompile(`^\d{4}-\d\d-\d\d, ((accepted|amended by |superseded by ).*)$`).FindStringSubmatch(lines[2])
		switch {
		case status == nil:
			t.Errorf("%s: line 3 is %q; want the date and the status, such as %q", file, lines[2], "2026-11-22, accepted")
		case listed[file] == "":
			t.Errorf("%s is not in %s/README.md: add a line to the table of its theme", file, decisions)
		case listed[file] != status[1]:
			t.Errorf("%s: the index gives the status %q, the record %q", file, listed[file], status[1])
		}
		delete(listed, file)
	}
	for file := range listed {
		t.Errorf("%s/README.md lists %s, which does not exist", decisions, file)
	}
}

// TestCitedDecisionsExist finds numbers of decisions, in code and on pages, that no record has.
func TestCitedDecisionsExist(t *testing.T) {
	citation := regexp.MustCompile(`(?i)\bdecisions? \[?(\d{3})\b`)
	numbers, cited := map[string]bool{}, 0
	for _, file := range recordFiles(t) {
		numbers[file[:3]] = true
	}
	for _, path := range append(goFiles(t), pages(t)...) {
		for _, match := range citation.FindAllStringSubmatch(readText(t, path), -1) {
			cited++
			if !numbers[match[1]] {
				t.Errorf("%s cites the decision %s, which does not exist", path, match[1])
			}
		}
	}
	if cited < 50 {
		t.Errorf("only %d citations found: the test looks in the wrong place", cited)
	}
}

// TestLinksBetweenPagesResolve follows each link from a page to a file of the repository,
// and to a heading in it.
func TestLinksBetweenPagesResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found := 0
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(prose(readText(t, page)), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			found++
			if err := follow(t, page, match[1]); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", page, match[1], err)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d links found: the test looks in the wrong place", found)
	}
}

// TestPathsNamedOnPagesExist checks that the folders and files named on pages exist. Records are left out: they
// describe the day on which they were written.
func TestPathsNamedOnPagesExist(t *testing.T) {
	named := regexp.MustCompile("`((?:internal|cmd|local|config|hack|bench|test|images|release)/[A-Za-z0-9_./-]*)…?`")
	found := 0
	for _, page := range pages(t) {
		if strings.HasPrefix(page, decisions) {
			continue
		}
		for _, match := range named.FindAllStringSubmatch(prose(readText(t, page)), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil && !isBuilt(match[1]) {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d paths found: the test looks in the wrong place", found)
	}
}

// TestEveryPackageIsInTheTableOfPackages compares docs/architecture.md with the folders below internal: its tables must
// describe each and list its allowed imports, and the purpose of each contract and each package of rules.
func TestEveryPackageIsInTheTableOfPackages(t *testing.T) {
	_, section, found := strings.Cut(readText(t, "docs/architecture.md"), "## Packages\n")
	if !found {
		t.Fatal("docs/architecture.md has no section Packages")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	missing := map[string]bool{}
	for _, path := range goFiles(t) {
		parts := strings.Split(path, "/")
		if len(parts) < 3 || parts[1] != "internal" {
			continue
		}
		names := []string{"internal/" + parts[2]}
		switch {
		case parts[2] == "contracts":
			names = append(names, parts[3])
		case parts[2] == "rules" && parts[len(parts)-2] != "main":
			names = append(names, strings.Join(parts[3:len(parts)-1], "/"))
		}
		for _, name := range names {
			if !strings.Contains(section, "`"+name+"`") {
				missing[name] = true
			}
		}
	}
	for name := range missing {
		t.Errorf("%s is not in the table of packages in docs/architecture.md", name)
	}
}

// isBuilt reports whether path is made by a run and so is missing in a fresh clone.
func isBuilt(path string) bool { return path == "bench/results.raw.json" }

func follow(t *testing.T, page, target string) error {
	t.Helper()
	file, anchor, _ := strings.Cut(target, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return err
	}
	if anchor != "" && !slices.Contains(anchors(readText(t, path)), anchor) {
		return fmt.Errorf("%s has no heading for #%s", path, anchor)
	}
	return nil
}

// anchors returns the names by which links reach the headings of a page.
func anchors(text string) []string {
	var found []string
	markup := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(prose(text), -1) {
		heading := markup.ReplaceAllString(match[1], "$1")
		heading = dropped.ReplaceAllString(strings.ToLower(heading), "")
		found = append(found, strings.ReplaceAll(strings.TrimSpace(heading), " ", "-"))
	}
	return found
}

// Blocks of code are left out.
func prose(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md", "internal/launcher/bootprobe/guest/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/runbooks/*.md", decisions + "/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range matches {
			found = append(found, strings.TrimPrefix(match, root+"/"))
		}
	}
	return found
}

func recordFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, page := range pages(t) {
		if name := filepath.Base(page); filepath.Dir(page) == decisions && name != "README.md" {
			found = append(found, name)
		}
	}
	if len(found) < 100 {
		t.Fatalf("only %d records found in %s: the test looks in the wrong place", len(found), decisions)
	}
	return found
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
