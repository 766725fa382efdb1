package main

import (
	"bytes"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// source writes a folder of source with files and returns it.
func source(t *testing.T, files map[string]string) string {
	t.Helper()
	web := t.TempDir()
	for name, text := range files {
		path := filepath.Join(web, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return web
}

// small is source with a package, of which one file is loaded at once and another later, and with shared styles.
func small() map[string]string {
	return map[string]string{
		"index.html":                         "<head>" + stylesPlace + scriptPlace + "</head>",
		entry:                                `import {a} from '@scope/p'; import './a.css'; import {shared} from './shared'; console.log(a, shared); void import('./later')`,
		"src/shell/a.css":                    ".first{color:red}",
		"src/shell/later.css":                ".second{color:blue}",
		"src/shell/shared.ts":                `import './a.css'; export const shared: string = 'shared';`,
		"src/shell/later.ts":                 `import './later.css'; import './a.css'; import {b} from 'q'; import {shared} from './shared'; console.log(b, shared)`,
		"node_modules/@scope/p/index.js":     "export const a = 'a package'",
		"node_modules/@scope/p/package.json": `{"name":"@scope/p","version":"1.0.0","license":"MIT","main":"index.js"}`,
		"node_modules/@scope/p/LICENSE":      "of p\r\n",
		"node_modules/q/index.js":            "export const b = 'another'",
		"node_modules/q/package.json":        `{"name":"q","version":"2.0.0","license":"ISC","main":"index.js"}`,
		"node_modules/q/license.md":          "of q",
		"node_modules/unused/package.json":   `{"name":"unused","version":"1.0.0","license":"GPL-3.0","main":"index.js"}`,
	}
}

// reader returns a function that reads the one file of a pattern in a bundle.
func reader(t *testing.T, out string) func(pattern string) string {
	return func(pattern string) string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(names) != 1 {
			t.Fatalf("%s: found %q, %v; want one", pattern, names, err)
		}
		text, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestABundleHasEverythingOnce(t *testing.T) {
	out := t.TempDir()
	if err := run(source(t, small()), out); err != nil {
		t.Fatal(err)
	}
	read := reader(t, out)
	if styles := read("assets/*.css"); strings.Count(styles, ".first") != 1 || strings.Count(styles, ".second") != 1 {
		t.Errorf("the styles are %q; want each once", styles)
	}
	main, later := read("assets/main-*.js"), read("assets/later-*.js")
	if !strings.Contains(main, "a package") || strings.Contains(main, "another") || !strings.Contains(later, "another") {
		t.Errorf("what is loaded at once is %q, later %q", main, later)
	}
	page := read(index)
	if strings.Count(page, "<link rel=\"stylesheet\" href=\"/assets/main-") != 1 || strings.Count(page, `<script type="module" src="/assets/main-`) != 1 ||
		strings.Count(page, `<link rel="modulepreload" href="/assets/`) != 1 || strings.Contains(page, "later") {
		t.Errorf("the page is %s", page)
	}
	if texts := read(notices); !strings.Contains(texts, "@scope/p 1.0.0 (MIT)\n\nof p\n") || !strings.Contains(texts, "q 2.0.0 (ISC)\n\nof q\n") || strings.Contains(texts, "unused") {
		t.Errorf("the notices are %q", texts)
	}
	if list := read(packageList); !strings.Contains(list, `"@scope/p"`) {
		t.Errorf("the packages are %s", list)
	}
}

func TestABundleReplacesThePreviousOne(t *testing.T) {
	web, out := source(t, small()), t.TempDir()
	for _, name := range []string{keep, "stale.js"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(web, out); err != nil {
		t.Fatal(err)
	}
	read := reader(t, out)
	page := read(index)
	if read(keep) != keep {
		t.Error("the file that keeps the folder is gone")
	}
	if _, err := os.Stat(filepath.Join(out, "stale.js")); err == nil {
		t.Error("a file of the previous bundle is left")
	}
	if err := run(web, out); err != nil {
		t.Fatal(err)
	}
	if again := read(index); again != page {
		t.Errorf("the same source gives another page: %s, then %s", page, again)
	}
}

func TestABundleThatIsNotFitIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		file, text, want string
	}{
		"an error of syntax":        {entry, "import {", "bundling"},
		"a package that is missing": {entry, "import 'nowhere'", "nowhere"},
		"a page without places":     {"index.html", "<head></head>", "must have"},
		"a foreign license":         {"node_modules/q/package.json", `{"name":"q","version":"2.0.0","license":"AGPL-3.0","main":"index.js"}`, "AGPL-3.0"},
		"no text of a license":      {"node_modules/q/license.md", "", "license of the package q"},
	} {
		t.Run(name, func(t *testing.T) {
			files := small()
			files[test.file] = test.text
			if test.text == "" {
				delete(files, test.file)
			}
			out := t.TempDir()
			err := run(source(t, files), out)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want an error with %q", err, test.want)
			}
			if left, _ := os.ReadDir(out); len(left) > 0 {
				t.Errorf("it wrote %v", left)
			}
		})
	}
}

func TestTheFirstViewIsBounded(t *testing.T) {
	noise := make([]byte, maxFirstView+1)
	rand.New(rand.NewSource(1)).Read(noise)
	files := map[string][]byte{"main.js": []byte("small"), "chunk.js": noise, "later.js": noise}
	if err := report(io.Discard, files, view{script: "main.js", imported: []string{"chunk.js"}}); err == nil {
		t.Error("a script that the first one imports does not count")
	}
	var said bytes.Buffer
	if err := report(&said, files, view{script: "main.js"}); err != nil || !strings.Contains(said.String(), "the first view loads 0 KB") {
		t.Errorf("a script that is loaded later counts: %v, %s", err, &said)
	}
}

func TestNamesOfPackages(t *testing.T) {
	var got []string
	for _, path := range []string{"react/index.js", "@scope/p/dist/x.js", "@scope"} {
		got = append(got, packageName(path))
	}
	if want := []string{"react", "@scope/p", "@scope"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
