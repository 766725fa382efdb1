package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The bundle is made by npm, which most builds don't need; so nothing else notices that it is old.
func TestABundleThatIsOlderThanItsSourcesIsNoticed(t *testing.T) {
	script, folder := filepath.Join(root, "hack/web-pages"), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web/src/a.ts", "web/index.html", "web/package.json", "web/package-lock.json", "web/tsconfig.json", "tools/webbuild/main.go", "internal/web/assets/dist/README"} {
		put(name, name)
	}
	says := func(how string, fails bool, want string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), script, how)
		cmd.Env = append(os.Environ(), "DRYDOCK_WEB_ROOT="+folder)
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails || !strings.Contains(string(out), want) || want == "" && len(out) > 0 {
			t.Errorf("%s: %v, %q; want it to fail: %v, and to say %q", how, err, out, fails, want)
		}
	}
	says("tell", false, "without the pages")
	says("check", false, "")
	put("internal/web/assets/dist/index.html", "")
	says("check", true, "older than the folder web")
	says("mark", false, "")
	says("tell", false, "")
	says("check", false, "")
	for _, name := range []string{"web/src/b.ts", "web/src/a.ts", "web/package-lock.json", "tools/webbuild/main.go"} {
		put(name, "changed")
		says("check", true, "older than the folder web")
		says("tell", false, "older than the folder web")
		says("mark", false, "")
	}
	put("tools/webbuild/main_test.go", "")
	says("check", false, "")
}
